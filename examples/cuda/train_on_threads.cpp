// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <zero/backends/cuda_threads.hpp>
#include <zero/backends/threads.hpp>

#include "train.hpp"

namespace cuda_example {

training_result train_on_threads(const training_settings& settings) {
  const int ranks = static_cast<int>(settings.ranks);
  std::vector<int> devices;
  const int count = zero::cuda_device_count().count;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank % count);
  const zero::cuda_threads_world world(ranks, {.devices = devices});

  const auto results = zero::run_threads(ranks, [&](zero::threads_communicator& thread) {
    const zero::cuda_device_guard device(devices[static_cast<std::size_t>(thread.rank())]);
    zero::cuda_threads_communicator communicator(world, thread.rank());
    try {
      return with_stage(settings,
                        [&]<class Stage>(Stage) { return train<Stage>(communicator, settings); });
    } catch (const std::exception& failure) {
      communicator.abort(failure.what());  // so that the others end now, and with the reason
      throw;
    }
  });
  return results[0];
}

}  // namespace cuda_example
