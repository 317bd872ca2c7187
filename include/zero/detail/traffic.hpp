// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include <zero/communicator.hpp>
#include <zero/detail/communicator_queries.hpp>
#include <zero/model_state.hpp>

namespace zero::detail {

/// The engine's only way to the communicator: every collective passes here and is booked on the
/// ledger line that is current.
template <HasTopology C>
class traffic {
 public:
  using space = typename C::memory_space;
  using queue = typename C::queue;
  using work = typename C::work;

  /// `crossing_bytes` per element of the partial sums that cross replicas.
  traffic(C& communicator, moved_elements& line, std::uint64_t crossing_bytes) noexcept
      : communicator_(&communicator), line_(&line), crossing_bytes_(crossing_bytes) {}

  void book_on(moved_elements& line) noexcept { line_ = &line; }
  C& communicator() const noexcept { return *communicator_; }

  /// The padding of both ranges is booked: `out` is what crosses the replicas.
  template <class T>
  work reduce_scatter(range<const T, partial, space> in, range<T, shard, space> out, float scale,
                      queue q) {
    if (peers() != 0) {
      line_->reduce_scatter += in.size() - in.padding();
      line_->padding += in.padding();
      line_->wire_bytes += peers() * out.size() * sizeof(T);
    }
    if (const auto replicas = static_cast<std::uint64_t>(replicas_of(*communicator_));
        replicas > 1) {
      line_->crossing += 2 * (out.size() - out.padding());
      line_->padding += 2 * out.padding();
      line_->wire_bytes += (replicas - 1) * (out.size() / replicas) * (crossing_bytes_ + sizeof(T));
    }
    return communicator_->reduce_scatter(in, out, reduce_options{scale}, q);
  }

  template <class T>
  work all_gather(range<const T, shard, space> in, range<T, full, space> out, queue q) {
    line_->all_gather += out.size() - out.padding();
    line_->padding += out.padding();
    line_->wire_bytes += peers() * in.size() * sizeof(T);
    return communicator_->all_gather(in, out, q);
  }

  work all_reduce(range<double, full, space> values, queue q) {
    line_->all_reduce += values.size();
    line_->wire_bytes += all_peers() * values.size() * sizeof(double);
    return communicator_->all_reduce(values, q);
  }

  template <class T>
  work broadcast(range<T, full, space> values, int root, queue q) {
    line_->broadcast += values.size();
    if (root == communicator_->rank() && replica_of(*communicator_) == 0) {
      line_->wire_bytes += all_peers() * values.size() * sizeof(T);
    }
    return communicator_->broadcast(values, root, q);
  }

 private:
  std::uint64_t peers() const noexcept {
    return static_cast<std::uint64_t>(communicator_->size()) - 1;
  }

  /// Of all replicas.
  std::uint64_t all_peers() const noexcept {
    return static_cast<std::uint64_t>(communicator_->size() * replicas_of(*communicator_)) - 1;
  }

  C* communicator_;
  moved_elements* line_;
  std::uint64_t crossing_bytes_;
};

}  // namespace zero::detail
