// SPDX-License-Identifier: Apache-2.0
#include "catalogue.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include <zero/optimizer.hpp>
#include <zero/precision.hpp>
#include <zero/stage.hpp>

#include "program.hpp"

namespace gpt {
namespace {

template <class S, class P, class O>
constexpr trainer_entry entry() {
  return {S::name,
          P::name,
          O::name,
          zero::flags_of<S>(),
          zero::bytes_of<P, O>(),
          zero::has_master<P>,
          &train_rank<S, P, O>};
}

template <class P>
constexpr std::array<trainer_entry, 5> all_stages() {
  using zero::adamw;
  return {entry<zero::stage0, P, adamw>(), entry<zero::stage1, P, adamw>(),
          entry<zero::stage2, P, adamw>(), entry<zero::stage3, P, adamw>(),
          entry<zero::stage3_keep_gathered, P, adamw>()};
}

template <class O>
constexpr std::array<trainer_entry, 4> two_stages() {
  return {entry<zero::stage1, zero::fp32, O>(), entry<zero::stage3, zero::fp32, O>(),
          entry<zero::stage1, zero::bf16_mixed, O>(), entry<zero::stage3, zero::bf16_mixed, O>()};
}

template <std::size_t... Sizes>
constexpr auto joined(const std::array<trainer_entry, Sizes>&... parts) {
  std::array<trainer_entry, (Sizes + ...)> all{};
  auto next = all.begin();
  ((next = std::copy(parts.begin(), parts.end(), next)), ...);
  return all;
}

constexpr auto trainers =
    joined(all_stages<zero::fp32>(), all_stages<zero::bf16_mixed>(), all_stages<zero::fp16_mixed>(),
           all_stages<zero::bf16_mixed_fp32_gradients>(), all_stages<zero::bf16_remainder>(),
           two_stages<zero::adam>(), two_stages<zero::lion>(), two_stages<zero::sgd>());

std::string quoted(std::string_view name) {
  return "\"" + std::string(name) + "\"";
}

}  // namespace

std::span<const trainer_entry> all_trainers() {
  return trainers;
}

const trainer_entry& find_trainer(std::string_view stage, std::string_view precision,
                                  std::string_view optimizer) {
  for (const trainer_entry& trainer : trainers) {
    if (trainer.stage == stage && trainer.precision == precision &&
        trainer.optimizer == optimizer) {
      return trainer;
    }
  }
  throw example::usage_failure(
      "there is no stage " + quoted(stage) + " with precision " + quoted(precision) +
      " and optimizer " + quoted(optimizer) +
      "; there are: stages 0, 1, 2, 3 and 3_keep_gathered with precisions fp32, bf16_mixed, "
      "fp16_mixed, bf16_mixed_fp32_gradients and bf16_remainder and optimizer adamw; stages 1 and "
      "3 with fp32 and bf16_mixed also with adam, lion and sgd");
}

}  // namespace gpt
