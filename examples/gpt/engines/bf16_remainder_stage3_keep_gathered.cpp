// SPDX-License-Identifier: Apache-2.0
#include "../trainer.hpp"

template gpt::rank_run gpt::train_rank<zero::stage3_keep_gathered, zero::bf16_remainder,
                                       zero::adamw>(rank_communicator&, const training_job&);
