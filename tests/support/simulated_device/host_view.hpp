// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <zero/communicator.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/cuda/stream.hpp>
#include <zero/range.hpp>

namespace zero::test {

/// A communicator of devices as one of the host, so that the tests of host backends run over it.
///
/// The simulated device computes on host memory, so ranges pass as they are. A wait orders a stream
/// after the result, as a program would, and then waits for that stream.
template <class Inner>
class host_view {
 public:
  using memory_space = host_space;
  using queue = host_queue;

  class work {
   public:
    work() noexcept = default;
    work(typename Inner::work inner, host_view& view)
        : inner_(std::move(inner)), communicator_(view.inner_.get()), stream_(view.stream_.get()) {}

    void wait(host_queue) {
      if (stream_ == nullptr) return;
      inner_.wait(*stream_);
      if constexpr (requires { communicator_->synchronize(*stream_); }) {
        communicator_->synchronize(*stream_);
      } else {
        stream_->synchronize();
      }
    }

   private:
    typename Inner::work inner_;
    Inner* communicator_ = nullptr;
    const unique_cuda_stream* stream_ = nullptr;
  };

  /// The order that the simulated NCCL keeps, whatever the real one promises.
  static constexpr summation sums = summation::rank_tree;
  static constexpr std::string_view backend_name() noexcept { return Inner::backend_name(); }

  explicit host_view(Inner inner)
      : inner_(std::make_unique<Inner>(std::move(inner))),
        stream_(std::make_unique<unique_cuda_stream>()) {}

  Inner& inner() noexcept { return *inner_; }
  int rank() const noexcept { return inner_->rank(); }
  int size() const noexcept { return inner_->size(); }
  void abort(std::string_view reason) noexcept { inner_->abort(reason); }
  bool claim() noexcept { return inner_->claim(); }
  void unclaim() noexcept { inner_->unclaim(); }

  template <class T, class U>
  work reduce_scatter(range<const T, partial> in, range<U, shard> out, reduce_options options,
                      queue) requires CanReduceScatter<Inner, T, U> {
    return {inner_->reduce_scatter(on_device(in), on_device(out), options, *stream_), *this};
  }

  template <class T>
  work all_gather(range<const T, shard> in, range<T, full> out, queue) {
    return {inner_->all_gather(on_device(in), on_device(out), *stream_), *this};
  }

  work all_reduce(range<double, full> values, queue) {
    return {inner_->all_reduce(on_device(values), *stream_), *this};
  }

  template <class T>
  work broadcast(range<T, full> values, int root, queue) {
    return {inner_->broadcast(on_device(values), root, *stream_), *this};
  }

  host_view split(int color) { return host_view(inner_->split(color)); }

 private:
  template <class T, class Role>
  static range<T, Role, cuda_space> on_device(range<T, Role> r) noexcept {
    return {r.data(), r.size(), r.padding()};
  }

  std::unique_ptr<Inner> inner_;
  std::unique_ptr<unique_cuda_stream> stream_;
};

}  // namespace zero::test
