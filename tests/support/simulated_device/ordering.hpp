// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <zero/communicator.hpp>
#include <zero/cuda/stream.hpp>
#include <zero/range.hpp>

// A program that depends on every wait of a communicator: each round copies an input into a buffer,
// moves it, copies the result out, and at once fills the buffers with something else. All of it is
// enqueued, and the host looks at the results at the very end.

namespace zero::test {

inline constexpr collective ordered_operations[] = {collective::reduce_scatter,
                                                    collective::all_gather, collective::all_reduce,
                                                    collective::broadcast};

/// What one rank's rounds work on. It outlives the communicators: where a wait is missing, somebody
/// may still use it when its rank is done.
class ordered_memory {
 public:
  static constexpr int rounds = 3;
  static constexpr std::size_t shard_elements = 2;

  ordered_memory(int rank, int size)
      : input(shard_elements * static_cast<std::size_t>(size)), output(input.size()) {
    for (int i = 0; i < rounds; ++i) {
      sources.emplace_back(input.size(), value_of(rank, i));
      results.emplace_back(input.size(), 0.0);
    }
  }
  static std::vector<ordered_memory> for_ranks(int size) {
    std::vector<ordered_memory> all;
    for (int rank = 0; rank < size; ++rank) all.emplace_back(rank, size);
    return all;
  }
  static double value_of(int rank, int round) { return 1 + rank + 16 * round; }

  std::vector<double> input;
  std::vector<double> output;
  std::vector<std::vector<double>> sources;
  std::vector<std::vector<double>> results;
};

template <class C>
class ordered_rounds {
 public:
  static constexpr int rounds = ordered_memory::rounds;

  ordered_rounds(C& comm, collective operation, std::vector<ordered_memory>& memory)
      : comm_(comm),
        operation_(operation),
        memory_(memory[static_cast<std::size_t>(comm.rank())]) {}

  /// "" or the first round whose result is wrong.
  std::string run() {
    for (int i = 0; i < rounds; ++i) enqueue(static_cast<std::size_t>(i));
    stream_.synchronize();
    for (int i = 0; i < rounds; ++i) {
      if (!is_right(i)) {
        return std::string(name_of(operation_)) + ": round " + std::to_string(i) + " is wrong";
      }
    }
    return {};
  }

 private:
  static constexpr std::size_t shard_elements = ordered_memory::shard_elements;

  void enqueue(std::size_t i) {
    copy(memory_.input, memory_.sources[i]);
    move().wait(stream_);
    copy(memory_.results[i],
         operation_ == collective::reduce_scatter || operation_ == collective::all_gather
             ? memory_.output
             : memory_.input);
    spoil(memory_.input);
    spoil(memory_.output);
  }

  typename C::work move() {
    using space = typename C::memory_space;
    const std::uint64_t all = memory_.input.size();
    double* const in = memory_.input.data();
    switch (operation_) {
      case collective::reduce_scatter:
        return comm_.reduce_scatter(
            range<const double, partial, space>(in, all),
            range<double, shard, space>(memory_.output.data(), shard_elements), {}, stream_);
      case collective::all_gather:
        return comm_.all_gather(range<const double, shard, space>(in, shard_elements),
                                range<double, full, space>(memory_.output.data(), all), stream_);
      case collective::all_reduce:
        return comm_.all_reduce(range<double, full, space>(in, all), stream_);
      default:
        return comm_.broadcast(range<double, full, space>(in, all), 0, stream_);
    }
  }

  bool is_right(int round) const {
    double sum = 0;
    for (int rank = 0; rank < comm_.size(); ++rank) sum += ordered_memory::value_of(rank, round);
    const auto& result = memory_.results[static_cast<std::size_t>(round)];
    const std::size_t elements =
        operation_ == collective::reduce_scatter ? shard_elements : result.size();
    for (std::size_t k = 0; k < elements; ++k) {
      double wanted = sum;
      if (operation_ == collective::broadcast) wanted = ordered_memory::value_of(0, round);
      if (operation_ == collective::all_gather) {
        wanted = ordered_memory::value_of(static_cast<int>(k / shard_elements), round);
      }
      if (result[k] != wanted) return false;
    }
    return true;
  }

  void copy(std::vector<double>& to, const std::vector<double>& from) {
    cudaMemcpyAsync(to.data(), from.data(), from.size() * sizeof(double), cudaMemcpyDefault,
                    stream_.get());
  }
  void spoil(std::vector<double>& values) {
    cudaMemsetAsync(values.data(), 0x55, values.size() * sizeof(double), stream_.get());
  }

  C& comm_;
  collective operation_;
  ordered_memory& memory_;
  unique_cuda_stream stream_;
};

}  // namespace zero::test
