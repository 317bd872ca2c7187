// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <zero/kernels/chunked_norm.hpp>
#include <zero/kernels/control.hpp>
#include <zero/layout.hpp>
#include <zero/optimizers/arguments.hpp>
#include <zero/partition.hpp>
#include <zero/plan.hpp>

namespace zero::detail {

/// Where the parts of a step's control lie in device memory: byte offsets from its begin.
///
/// What the host sends before each step, the request and the groups' arguments, is contiguous.
struct cuda_control_layout {
  std::uint64_t block = 0;    ///< control_block
  std::uint64_t request = 0;  ///< step_request
  std::uint64_t groups = 0;   ///< update_arguments, one for each group
  std::uint64_t scalars = 0;  ///< of the optimizer, for each group
  std::uint64_t message = 0;  ///< step_message_elements doubles
  std::uint64_t squares = 0;  ///< this rank's sum of squares, one double
  std::uint64_t scratch = 0;  ///< doubles, for the sums of chunks
  std::uint64_t bytes = 0;    ///< of all

  /// `scalar_bytes`: of one group.
  cuda_control_layout(const model_layout& layout, const plan_request& request_of_plan,
                      std::uint64_t scalar_bytes) {
    const std::uint64_t group_count = layout.group_count();
    std::uint64_t end = sizeof(kernels::control_block);
    const auto place = [&](std::uint64_t size) {
      const std::uint64_t begin = round_up(end, alignment);
      end = begin + size;
      return begin;
    };
    request = place(sizeof(kernels::step_request) + group_count * sizeof(update_arguments));
    groups = request + sizeof(kernels::step_request);
    scalars = place(group_count * scalar_bytes);
    message = place(kernels::step_message_elements * sizeof(double));
    squares = place(sizeof(double));
    scratch = place(sizeof(double) * largest_scratch(layout, request_of_plan));
    bytes = round_up(end, alignment);
  }

  /// What the host sends before each step.
  std::uint64_t sent_bytes(std::uint64_t group_count) const noexcept {
    return sizeof(kernels::step_request) + group_count * sizeof(update_arguments);
  }

 private:
  static constexpr std::uint64_t alignment = 64;
  static_assert(sizeof(kernels::step_request) % alignof(update_arguments) == 0);

  /// Sums of squares are taken of parts of this rank's shards, one after the other.
  static std::uint64_t largest_scratch(const model_layout& layout, const plan_request& request) {
    std::uint64_t largest = 0;
    for (std::uint32_t u = 0; u < layout.unit_count(); ++u) {
      const partition cut = partition_for(request, layout.flat_elements(unit_id{u}, true),
                                          layout.alignment_elements(), true);
      largest = std::max(largest, kernels::norm_scratch_elements(cut.shard_elements));
    }
    return largest;
  }
};

}  // namespace zero::detail
