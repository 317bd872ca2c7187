// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>

#include <zero/error.hpp>
#include <zero/model_state.hpp>
#include <zero/partition.hpp>
#include <zero/range.hpp>

namespace zero {

/// Where an engine's arena comes from. Derive to place it in pinned, huge-page or device memory.
class memory_resource {
 public:
  virtual ~memory_resource() = default;
  /// Returns `bytes` bytes aligned to `alignment`. Throws: std::bad_alloc or a zero::error.
  virtual void* allocate(std::uint64_t bytes, std::uint64_t alignment) = 0;
  virtual void deallocate(void* pointer, std::uint64_t bytes, std::uint64_t alignment) noexcept = 0;
};

/// Host memory from operator new.
class host_memory final : public memory_resource {
 public:
  void* allocate(std::uint64_t bytes, std::uint64_t alignment) override {
    return ::operator new(static_cast<std::size_t>(bytes),
                          std::align_val_t{static_cast<std::size_t>(alignment)});
  }
  void deallocate(void* pointer, std::uint64_t /*bytes*/,
                  std::uint64_t alignment) noexcept override {
    ::operator delete(pointer, std::align_val_t{static_cast<std::size_t>(alignment)});
  }
};

/// Counts what it hands out; the independent witness of the bytes an engine holds.
class counting_memory final : public memory_resource {
 public:
  counting_memory() = default;
  explicit counting_memory(memory_resource& upstream) : upstream_(&upstream) {}

  void* allocate(std::uint64_t bytes, std::uint64_t alignment) override {
    void* pointer = upstream_->allocate(bytes, alignment);
    held_ += bytes;
    peak_ = held_ > peak_ ? held_ : peak_;
    return pointer;
  }
  void deallocate(void* pointer, std::uint64_t bytes, std::uint64_t alignment) noexcept override {
    upstream_->deallocate(pointer, bytes, alignment);
    held_ -= bytes;
  }
  std::uint64_t held_bytes() const noexcept { return held_; }
  std::uint64_t peak_bytes() const noexcept { return peak_; }

 private:
  host_memory host_;
  memory_resource* upstream_ = &host_;
  std::uint64_t held_ = 0;
  std::uint64_t peak_ = 0;
};

/// One block of memory, handed out front to back, that keeps account of what it was taken for.
///
/// Every buffer of an engine is taken from its arena at construction, so addresses are fixed and
/// nothing is allocated afterwards.
class arena {
 public:
  static constexpr std::uint64_t alignment_bytes = 64;

  arena() = default;
  /// A block of `bytes` from `resource`.
  arena(memory_resource& resource, std::uint64_t bytes)
      : resource_(&resource),
        base_(static_cast<std::byte*>(resource.allocate(bytes, alignment_bytes))),
        size_(bytes) {}
  /// A block that the user supplies and keeps alive.
  explicit arena(std::span<std::byte> block) noexcept : base_(block.data()), size_(block.size()) {}

  arena(arena&& other) noexcept { swap(other); }
  arena& operator=(arena&& other) noexcept {
    swap(other);
    return *this;
  }
  ~arena() {
    if (resource_ != nullptr) resource_->deallocate(base_, size_, alignment_bytes);
  }

  /// Takes the next bytes for `state`: `real` of them hold elements, `padding` follow or lie
  /// between. Throws: zero::error when the block is too small.
  std::byte* take(memory_state state, std::uint64_t real_bytes, std::uint64_t padding_bytes) {
    const std::uint64_t bytes = real_bytes + padding_bytes;
    if (bytes > size_ - used_) {
      throw error("zero::arena: " + std::to_string(bytes) + " bytes wanted, " +
                  std::to_string(size_ - used_) + " of " + std::to_string(size_) + " are left");
    }
    std::byte* const position = base_ + used_;
    used_ += bytes;
    held_.add(state, real_bytes, padding_bytes);
    return position;
  }

  std::byte* data() const noexcept { return base_; }
  std::uint64_t size() const noexcept { return size_; }
  std::uint64_t used() const noexcept { return used_; }
  /// What was taken, by state.
  const held_bytes& held() const noexcept { return held_; }

 private:
  void swap(arena& other) noexcept {
    std::swap(resource_, other.resource_);
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    std::swap(used_, other.used_);
    std::swap(held_, other.held_);
  }

  memory_resource* resource_ = nullptr;
  std::byte* base_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t used_ = 0;
  held_bytes held_;
};

}  // namespace zero
