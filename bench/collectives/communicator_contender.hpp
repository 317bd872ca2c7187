// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include <zero/communicator.hpp>
#include <zero/range.hpp>

#include "contender.hpp"

namespace collectives_bench {

/// Any communicator of the library; `Holder` is it, or a reference to it.
template <class Holder>
class communicator_contender final : public contender {
 public:
  communicator_contender(Holder communicator, rank_memory memory)
      : contender({communicator.rank(), communicator.size()}, memory),
        communicator_(std::forward<Holder>(communicator)) {}

  void run(const workload& load) override {
    if (load.what == operation::all_reduce) {
      communicator_
          .all_reduce(zero::range<double, zero::full>(reinterpret_cast<double*>(memory().full),
                                                      load.elements))
          .wait({});
      return;
    }
    with_element_type(load.type, [&]<class T>(std::type_identity<T>) { run_on<T>(load); });
  }

 private:
  template <class T>
  void run_on(const workload& load) {
    const std::uint64_t shard_elements = load.elements / static_cast<std::uint64_t>(place().size);
    T* const full = reinterpret_cast<T*>(memory().full);
    if (load.what == operation::reduce_scatter) {
      communicator_
          .reduce_scatter(
              zero::range<const T, zero::partial>(full, load.elements),
              zero::range<T, zero::shard>(reinterpret_cast<T*>(memory().shard), shard_elements))
          .wait({});
      return;
    }
    const T* const own = full + static_cast<std::uint64_t>(place().rank) * shard_elements;
    communicator_
        .all_gather(zero::range<const T, zero::shard>(own, shard_elements),
                    zero::range<T, zero::full>(full, load.elements))
        .wait({});
  }

  Holder communicator_;
};

}  // namespace collectives_bench
