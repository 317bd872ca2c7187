// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/communicator.hpp>
#include <zero/engine_options.hpp>
#include <zero/layout.hpp>
#include <zero/optimizers/adamw.hpp>

// A small training whose every collective can be watched: where the fault tests strike.

namespace zero::test {

enum class run_phase { construction, initialization, import, step, idle };

/// A place in a run: before or after a collective, or in the pause between two steps.
struct run_point {
  run_phase phase = run_phase::construction;
  std::uint64_t step = 0;
  std::optional<collective> operation{};  ///< none in the pause
  std::uint64_t index = 0;                ///< counts this operation in this phase and step
  bool is_after = false;
  std::uint64_t sequence = 0;  ///< of the collective; of the next one in the pause
  bool moves_payload = false;  ///< anything but the 64-bit words of descriptions and checks
};
using run_observer = std::function<void(const run_point&)>;

/// The units of `process_layout`: each is reduced by one collective a step.
constexpr std::uint64_t process_units = 4;

/// Units with tensors of odd sizes. `tensors` may be changed before a layout is made of them.
struct described_tensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  group_id group = decay;
  bool is_trainable = true;
};
std::vector<described_tensor> process_tensors();
model_layout layout_of(const std::vector<described_tensor>& tensors);

enum class process_precision { fp32, bf16_mixed };

/// What is trained, and how.
struct process_training {
  int stage = 0;
  process_precision precision = process_precision::fp32;
  std::vector<described_tensor> tensors = process_tensors();
  adamw optimizer{};
  engine_options options{};
  std::uint64_t steps = 3;
};

/// Builds the engine, sets its values, by import from rank 0 too, trains, and returns the bits of
/// all parameters as fp32. Collective.
std::vector<std::uint32_t> train(any_communicator& communicator, const process_training& training,
                                 const run_observer& observer);

/// Compares fingerprints that differ, on the odd rank, in the library's version. Collective.
void compare_versions(any_communicator& communicator, bool is_odd_one,
                      const run_observer& observer);

}  // namespace zero::test
