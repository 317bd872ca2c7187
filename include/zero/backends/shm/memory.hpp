// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include <zero/backends/shm/layout.hpp>
#include <zero/backends/shm/system.hpp>

namespace zero {

namespace detail {

/// Memory that all ranks map, one part per rank.
///
/// A rank that gives its part up returns the pages at once, but keeps the addresses until all
/// ranks have given theirs up: a peer may still hand its own part to a collective.
class shm_block {
 public:
  shm_block(shared_segment segment, std::uint64_t id, int rank, std::uint64_t part_bytes)
      : segment_(std::move(segment)),
        id_(id),
        rank_(rank),
        pid_(::getpid()),
        part_bytes_(part_bytes) {
    segment_.populate(position(rank), part_bytes);
  }

  static std::uint64_t segment_bytes(int size, std::uint64_t part_bytes) noexcept {
    const auto parts = static_cast<std::uint64_t>(size);
    return segment_layout::page_bytes + parts * segment_layout::to_pages(part_bytes);
  }

  std::uint64_t id() const noexcept { return id_; }
  std::uint64_t part_bytes() const noexcept { return part_bytes_; }
  std::byte* part(int rank) const noexcept { return segment_.base() + position(rank); }

  /// Whether the bytes lie in the own part.
  bool holds(const std::byte* first, std::uint64_t bytes) const noexcept {
    // std::less orders pointers into different objects, the built-in operator does not.
    const std::less<> before;
    const std::byte* const own = part(rank_);
    if (before(first, own) || before(own + part_bytes_, first)) return false;
    return bytes <= part_bytes_ - static_cast<std::uint64_t>(first - own);
  }

  void close_descriptor() noexcept { segment_.close_descriptor(); }

  /// To be called once, when the owner of the own part goes.
  void release() noexcept {
    if (::getpid() != pid_) return;  // a copy made by fork; the pages are the parent's
    segment_.drop(position(rank_), part_bytes_);
    head().released.fetch_add(1);
  }
  bool is_released_by(int size) const noexcept {
    return head().released.load() == static_cast<std::uint64_t>(size);
  }

 private:
  struct block_head {
    segment_identity identity;
    alignas(64) std::atomic<std::uint64_t> released;  // ranks
  };

  block_head& head() const noexcept { return *reinterpret_cast<block_head*>(segment_.base()); }
  std::uint64_t position(int rank) const noexcept {
    return segment_layout::page_bytes +
           static_cast<std::uint64_t>(rank) * segment_layout::to_pages(part_bytes_);
  }

  shared_segment segment_;
  std::uint64_t id_;
  int rank_;
  std::int64_t pid_;
  std::uint64_t part_bytes_;
};

}  // namespace detail

/// Memory of one rank that its peers read where it lies; from shm_communicator::shared_memory.
///
/// Collectives over ranges inside it copy nothing on the way: give it to an engine as
/// engine_options::arena. Zeros at first, aligned to a page. It may outlive its communicator, and
/// must not be used by a child that is forked later.
class shm_memory {
 public:
  shm_memory() = default;
  shm_memory(shm_memory&&) noexcept = default;
  shm_memory& operator=(shm_memory&& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(rank_, other.rank_);
    return *this;
  }
  ~shm_memory() {
    if (block_) block_->release();
  }

  std::byte* data() const noexcept { return block_ ? block_->part(rank_) : nullptr; }
  std::uint64_t size_bytes() const noexcept { return block_ ? block_->part_bytes() : 0; }
  std::span<std::byte> bytes() const noexcept {
    return {data(), static_cast<std::size_t>(size_bytes())};
  }

 private:
  friend class shm_communicator;
  shm_memory(std::shared_ptr<detail::shm_block> block, int rank) noexcept
      : block_(std::move(block)), rank_(rank) {}

  std::shared_ptr<detail::shm_block> block_;
  int rank_ = 0;
};

}  // namespace zero
