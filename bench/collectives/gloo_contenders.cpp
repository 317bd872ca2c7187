// SPDX-License-Identifier: Apache-2.0
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <zero/backends/gloo.hpp>
#include <zero/kernels/fold.hpp>

#include "communicator_contender.hpp"
#include "worker.hpp"

namespace collectives_bench {
namespace {

/// Longer than any wait of a rank for the others, shorter than the program's patience.
constexpr std::chrono::seconds timeout{60};

/// What a program has without this library: Gloo's own ring all-reduce, of which a rank keeps its
/// shard, and Gloo's own all-gather. Both work in place, and sums are made by the kernel that the
/// library uses, so that only the exchange differs.
class gloo_own_contender final : public contender {
 public:
  gloo_own_contender(rank_place place, rank_memory memory, std::shared_ptr<gloo::Context> context)
      : contender(place, memory), context_(std::move(context)) {}

  void run(const workload& load) override {
    ++tag_;
    if (load.what == operation::all_reduce) return all_reduce<double>(load.elements);
    with_element_type(load.type, [&]<class T>(std::type_identity<T>) {
      if (load.what == operation::reduce_scatter)
        all_reduce<T>(load.elements);
      else
        all_gather<T>(load.elements);
    });
  }

  const std::byte* result(const workload& load) const override {
    if (load.what != operation::reduce_scatter) return memory().full;
    const auto ranks = static_cast<std::uint64_t>(place().size);
    return memory().full + static_cast<std::uint64_t>(place().rank) * (load.bytes() / ranks);
  }

 private:
  /// Repeated sums in place overflow to infinity, which takes no longer to add.
  template <class T>
  void all_reduce(std::uint64_t elements) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(reinterpret_cast<T*>(memory().full), elements);
    options.setReduceFunction(
        [](void* to, const void* first, const void* second, std::size_t count) {
          const std::array<const T*, 2> inputs{static_cast<const T*>(first),
                                               static_cast<const T*>(second)};
          zero::kernels::fold(zero::host_space{}, std::span<const T* const>(inputs),
                              static_cast<T*>(to), count, 1.0F);
        });
    options.setTag(tag_);
    options.setTimeout(timeout);
    gloo::allreduce(options);
  }

  template <class T>
  void all_gather(std::uint64_t elements) {
    gloo::AllgatherOptions options(context_);
    options.setOutput(reinterpret_cast<T*>(memory().full), elements);
    options.setTag(tag_);
    options.setTimeout(timeout);
    gloo::allgather(options);
  }

  std::shared_ptr<gloo::Context> context_;
  std::uint32_t tag_ = 0;
};

std::shared_ptr<gloo::Context> connect(rank_place place, const zero::any_store& store) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(place.rank, place.size);
  context->setTimeout(timeout);
  auto meeting_place = std::make_shared<zero::detail::gloo_store_adapter>(
      store, "bench/gloo", zero::deadline_in(timeout));
  zero::detail::gloo_setup::mesh(*context, std::move(meeting_place), device);
  return context;
}

}  // namespace

void add_gloo_contenders(contender_map& to, rank_place place, rank_memory memory,
                         zero::any_store store) {
  zero::gloo_options options;
  options.timeout = timeout;
  const auto add = [&]<class Communicator>(contender_id id, std::type_identity<Communicator>,
                                           int depth, std::uint64_t segment_mebibytes) {
    options.depth = depth;
    options.segment_bytes = segment_mebibytes << 20U;
    to.emplace(id, std::make_unique<communicator_contender<Communicator>>(
                       Communicator(store, place.rank, place.size, options), memory));
  };
  constexpr std::type_identity<zero::gloo_communicator> direct;
  constexpr std::type_identity<zero::gloo_ring_communicator> ring;
  add(contender_id::gloo_2_of_1_mebibyte, direct, 2, 1);
  add(contender_id::gloo_4_of_1_mebibyte, direct, 4, 1);
  add(contender_id::gloo_2_of_2_mebibytes, direct, 2, 2);
  add(contender_id::gloo_4_of_2_mebibytes, direct, 4, 2);
  add(contender_id::gloo_ring_of_1_mebibyte, ring, 4, 1);
  add(contender_id::gloo_ring_of_2_mebibytes, ring, 4, 2);
  options.checked_order = false;
  add(contender_id::gloo_unchecked, direct, 4, 1);
  to.emplace(contender_id::gloo_own,
             std::make_unique<gloo_own_contender>(place, memory, connect(place, store)));
}

}  // namespace collectives_bench
