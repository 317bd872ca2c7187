// SPDX-License-Identifier: Apache-2.0
#include <exception>

#include <zero/backends/nccl.hpp>
#include <zero/rendezvous/environment.hpp>
#include <zero/rendezvous/open_store.hpp>

#include "train.hpp"

namespace cuda_example {

training_result train_over_nccl(const training_settings& settings) {
  const zero::launch_environment launch = zero::from_environment();
  // Outlives the communicator, so that rank 0 serves the others until they have met.
  zero::any_store store = zero::open_store(launch, {});
  const zero::cuda_device_guard device(launch.local_rank.value_or(launch.rank) %
                                       zero::cuda_device_count().count);
  zero::nccl_communicator communicator(store, launch.rank, launch.size, {});
  try {
    return with_stage(settings,
                      [&]<class Stage>(Stage) { return train<Stage>(communicator, settings); });
  } catch (const std::exception& failure) {
    communicator.abort(failure.what());
    throw;
  }
}

}  // namespace cuda_example
