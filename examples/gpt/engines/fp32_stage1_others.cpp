// SPDX-License-Identifier: Apache-2.0
#include "../trainer.hpp"

template gpt::rank_run gpt::train_rank<zero::stage1, zero::fp32, zero::adam>(
    rank_communicator&, const training_job&);
template gpt::rank_run gpt::train_rank<zero::stage1, zero::fp32, zero::lion>(
    rank_communicator&, const training_job&);
template gpt::rank_run gpt::train_rank<zero::stage1, zero::fp32, zero::sgd>(
    rank_communicator&, const training_job&);
