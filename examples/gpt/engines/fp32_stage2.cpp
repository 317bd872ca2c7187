// SPDX-License-Identifier: Apache-2.0
#include "../trainer.hpp"

template gpt::rank_run gpt::train_rank<zero::stage2, zero::fp32, zero::adamw>(
    rank_communicator&, const training_job&);
