// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <zero/model_state.hpp>

#include "rank_run.hpp"

namespace gpt {

/// One engine type that is built in: its policies' names, what the formulas need to know of them,
/// and its training loop.
struct trainer_entry {
  std::string_view stage;
  std::string_view precision;
  std::string_view optimizer;
  zero::stage_flags flags;
  zero::element_bytes bytes;
  bool has_masters;
  rank_run (*train)(rank_communicator&, const training_job&);
};

/// All of them: every stage and precision with adamw, some with the other optimizers.
std::span<const trainer_entry> all_trainers();

/// Throws: example::usage_failure with the list of what there is.
const trainer_entry& find_trainer(std::string_view stage, std::string_view precision,
                                  std::string_view optimizer);

}  // namespace gpt
