// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/shm.hpp>
#include <zero/rendezvous/file_store.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "conformance/backends.hpp"
#include "support/communicator_contract.hpp"
#include "support/process_runner.hpp"
#include "unit/rendezvous/temporary_folder.hpp"

// How the contract gets ranks of the shared-memory backend: as threads of one process, which is
// quick and can be watched by sanitizers, and as processes.

namespace zero::test {

/// Passes calls on with copies of the ranges in shared memory, so that the inner communicator reads
/// the peers where their data lies.
class through_shared_memory {
 public:
  using memory_space = host_space;
  using queue = host_queue;
  using work = shm_communicator::work;

  static constexpr summation sums = shm_communicator::sums;
  static constexpr std::string_view backend_name() noexcept { return "shm"; }

  through_shared_memory(shm_communicator& inner, std::uint64_t bytes)
      : inner_(inner), memory_(inner.shared_memory(bytes)) {}

  int rank() const noexcept { return inner_.rank(); }
  int size() const noexcept { return inner_.size(); }
  void abort(std::string_view reason) noexcept { inner_.abort(reason); }
  bool claim() noexcept { return inner_.claim(); }
  void unclaim() noexcept { inner_.unclaim(); }

  template <class T, class U>
  work reduce_scatter(range<const T, partial> in, range<U, shard> out, reduce_options options,
                      queue) {
    check_full_and_shard("reduce_scatter", in, out);
    T* const shared = place(in.data(), in.size());
    // In place where the caller is; apart otherwise.
    const T* const own_shard = in.data() + own(out.size());
    const bool in_place = static_cast<const void*>(own_shard) == static_cast<void*>(out.data());
    U* const result = in_place ? reinterpret_cast<U*>(shared + own(out.size()))
                               : reinterpret_cast<U*>(behind(in.size() * sizeof(T)));
    inner_.reduce_scatter(range<const T, partial>(shared, in.size()),
                          range<U, shard>(result, out.size()), options, {});
    std::copy(result, result + out.size(), out.data());
    return {};
  }

  template <class T>
  work all_gather(range<const T, shard> in, range<T, full> out, queue) {
    check_full_and_shard("all_gather", out, in);
    T* const gathered = place(out.data(), out.size());
    const bool in_place = in.data() == out.data() + own(in.size());
    T* const own_shard =
        in_place ? gathered + own(in.size()) : reinterpret_cast<T*>(behind(out.size() * sizeof(T)));
    std::copy(in.begin(), in.end(), own_shard);
    inner_.all_gather(range<const T, shard>(own_shard, in.size()),
                      range<T, full>(gathered, out.size()), {});
    std::copy(gathered, gathered + out.size(), out.data());
    return {};
  }

  template <class T>
  work broadcast(range<T, full> values, int root, queue) {
    T* const shared = place(values.data(), values.size());
    inner_.broadcast(range<T, full>(shared, values.size()), root, {});
    std::copy(shared, shared + values.size(), values.data());
    return {};
  }

  work all_reduce(range<double, full> values, queue) { return inner_.all_reduce(values, {}); }
  shm_communicator split(int color) { return inner_.split(color); }

 private:
  /// Before the copy, which takes the ranges for what they should be.
  template <class Full, class Shard>
  void check_full_and_shard(std::string_view operation, const Full& all, const Shard& one) const {
    zero::detail::check_full_and_shard({backend_name(), rank(), size(), operation}, all.data(),
                                       all.size(), one.data(), one.size());
  }
  std::uint64_t own(std::uint64_t shard_elements) const noexcept {
    return static_cast<std::uint64_t>(rank()) * shard_elements;
  }
  template <class T>
  T* place(const T* values, std::uint64_t count) {
    T* const shared = reinterpret_cast<T*>(memory_.data());
    std::copy(values, values + count, shared);
    return shared;
  }
  /// A position behind so many bytes, aligned.
  std::byte* behind(std::uint64_t bytes) const { return memory_.data() + (bytes + 63) / 64 * 64; }

  shm_communicator& inner_;
  shm_memory memory_;
};

/// Which memory ranges lie in, and how small the chunks are.
struct shm_by_default {
  static std::uint64_t chunk_bytes(int) { return shm_options{}.chunk_bytes; }
  /// Numbers of processes; threads are cheaper and show the rest.
  static std::vector<int> process_sizes() { return {1, 2, 3, 5, 8}; }
  template <class Function>
  static auto call(shm_communicator& inner, Function& function) {
    return function(inner);
  }
};

/// Pieces of a cache line, or few: every operation takes many chunks.
struct shm_in_small_chunks : shm_by_default {
  static std::uint64_t chunk_bytes(int size) {
    return std::max<std::uint64_t>(64U * static_cast<std::uint64_t>(size), 256);
  }
};

struct shm_in_shared_memory : shm_in_small_chunks {
  static std::vector<int> process_sizes() { return {2, 3}; }
  template <class Function>
  static auto call(shm_communicator& inner, Function& function) {
    // The largest range of the contract, and its shard apart.
    through_shared_memory direct(inner, 2 * sizeof(float) * usual_contract().large_elements);
    return function(direct);
  }
};

/// Ranks as threads, each with its own mapping.
template <class Memory>
struct shm_threads {
  static std::vector<int> sizes() { return sizes_up_to(8); }
  static std::string name() { return "shm"; }

  template <class Function>
  static auto run(int size, threads_options options, Function function) {
    memory_store store;
    return try_run_threads(size, options, [&](threads_communicator& thread) {
      shm_communicator inner(
          store, thread.rank(), size,
          {.timeout = options.timeout, .chunk_bytes = Memory::chunk_bytes(size)});
      try {
        return Memory::call(inner, function);
      } catch (const std::exception& error) {
        // Peers learn why before the destructor tells them that this rank left.
        inner.abort(error.what());
        throw;
      }
    });
  }
};

/// Ranks as processes.
template <class Memory>
struct shm_processes {
  static std::vector<int> sizes() { return Memory::process_sizes(); }
  static std::string name() { return "shm"; }

  template <class Function>
  static auto run(int size, threads_options options, Function function) {
    const temporary_folder folder;
    return run_processes(
        size,
        [&](int rank) {
          file_store store(folder / "store", rank, size);
          return shm_communicator(
              store, rank, size,
              {.timeout = options.timeout, .chunk_bytes = Memory::chunk_bytes(size)});
        },
        [&](shm_communicator& inner) { return Memory::call(inner, function); });
  }
};

}  // namespace zero::test
