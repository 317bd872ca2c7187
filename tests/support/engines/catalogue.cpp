// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include <array>
#include <string>
#include <vector>

#include "support/any_engine.hpp"

// Which engine types this build holds, and the way to them by name.

namespace zero::test {

template <class S, class P, class O>
std::unique_ptr<any_engine> make_typed(counted_communicator& communicator,
                                       const model_layout& layout, double weight_decay,
                                       const engine_options& options);

namespace {

using maker = std::unique_ptr<any_engine> (*)(counted_communicator&, const model_layout&, double,
                                              const engine_options&);

struct entry {
  engine_choice choice;
  maker make;
};

template <class P, class O>
void add_two_stages(std::vector<entry>& entries, precision_kind precision,
                    optimizer_kind optimizer) {
  entries.push_back({{stage_kind::stage1, precision, optimizer}, &make_typed<stage1, P, O>});
  entries.push_back({{stage_kind::stage3, precision, optimizer}, &make_typed<stage3, P, O>});
}

template <class P, class O>
void add_all_stages(std::vector<entry>& entries, precision_kind precision,
                    optimizer_kind optimizer) {
  entries.push_back({{stage_kind::stage0, precision, optimizer}, &make_typed<stage0, P, O>});
  entries.push_back({{stage_kind::stage2, precision, optimizer}, &make_typed<stage2, P, O>});
  entries.push_back({{stage_kind::stage3_keep_gathered, precision, optimizer},
                     &make_typed<stage3_keep_gathered, P, O>});
  add_two_stages<P, O>(entries, precision, optimizer);
}

std::vector<entry> catalogue() {
  std::vector<entry> entries;
  add_all_stages<bf16_mixed, adamw>(entries, precision_kind::bf16_mixed, optimizer_kind::adamw);
  add_all_stages<fp16_mixed, adamw>(entries, precision_kind::fp16_mixed, optimizer_kind::adamw);
#ifndef ZERO_TEST_REDUCED
  add_all_stages<fp32, adamw>(entries, precision_kind::fp32, optimizer_kind::adamw);
  add_all_stages<bf16_mixed_fp32_gradients, adamw>(
      entries, precision_kind::bf16_mixed_fp32_gradients, optimizer_kind::adamw);
  add_all_stages<bf16_remainder, adamw>(entries, precision_kind::bf16_remainder,
                                        optimizer_kind::adamw);
  add_two_stages<fp32, adam>(entries, precision_kind::fp32, optimizer_kind::adam);
  add_two_stages<fp32, sgd>(entries, precision_kind::fp32, optimizer_kind::sgd);
  add_two_stages<fp32, lion>(entries, precision_kind::fp32, optimizer_kind::lion);
  add_two_stages<bf16_mixed, adam>(entries, precision_kind::bf16_mixed, optimizer_kind::adam);
  add_two_stages<bf16_mixed, sgd>(entries, precision_kind::bf16_mixed, optimizer_kind::sgd);
  add_two_stages<bf16_mixed, lion>(entries, precision_kind::bf16_mixed, optimizer_kind::lion);
#endif
  return entries;
}

template <Optimizer O>
element_bytes bytes_with(precision_kind precision) {
  switch (precision) {
    case precision_kind::fp32:
      return zero::bytes_of<fp32, O>();
    case precision_kind::bf16_mixed:
      return zero::bytes_of<bf16_mixed, O>();
    case precision_kind::fp16_mixed:
      return zero::bytes_of<fp16_mixed, O>();
    case precision_kind::bf16_mixed_fp32_gradients:
      return zero::bytes_of<bf16_mixed_fp32_gradients, O>();
    case precision_kind::bf16_remainder:
      return zero::bytes_of<bf16_remainder, O>();
  }
  throw usage_error("no such precision");
}

}  // namespace

std::string name_of(stage_kind stage) {
  constexpr std::array names = {stage0::name, stage1::name, stage2::name, stage3::name,
                                stage3_keep_gathered::name};
  return std::string(names.at(static_cast<std::size_t>(stage)));
}
std::string name_of(precision_kind precision) {
  constexpr std::array names = {fp32::name, bf16_mixed::name, fp16_mixed::name,
                                bf16_mixed_fp32_gradients::name, bf16_remainder::name};
  return std::string(names.at(static_cast<std::size_t>(precision)));
}
std::string name_of(optimizer_kind optimizer) {
  constexpr std::array names = {adamw::name, adam::name, sgd::name, lion::name};
  return std::string(names.at(static_cast<std::size_t>(optimizer)));
}
std::string name_of(const engine_choice& choice) {
  return "stage " + name_of(choice.stage) + ", " + name_of(choice.precision) + ", " +
         name_of(choice.optimizer);
}

std::vector<precision_kind> built_precisions() {
#ifdef ZERO_TEST_REDUCED
  return {precision_kind::bf16_mixed, precision_kind::fp16_mixed};
#else
  return {precision_kind::fp32, precision_kind::bf16_mixed, precision_kind::fp16_mixed,
          precision_kind::bf16_mixed_fp32_gradients, precision_kind::bf16_remainder};
#endif
}

std::vector<engine_choice> built_engines() {
  std::vector<engine_choice> choices;
  for (const entry& known : catalogue()) choices.push_back(known.choice);
  return choices;
}

stage_flags flags_of(stage_kind stage) {
  switch (stage) {
    case stage_kind::stage0:
      return zero::flags_of<stage0>();
    case stage_kind::stage1:
      return zero::flags_of<stage1>();
    case stage_kind::stage2:
      return zero::flags_of<stage2>();
    case stage_kind::stage3:
      return zero::flags_of<stage3>();
    case stage_kind::stage3_keep_gathered:
      return zero::flags_of<stage3_keep_gathered>();
  }
  throw usage_error("no such stage");
}

element_bytes bytes_of(precision_kind precision, optimizer_kind optimizer) {
  switch (optimizer) {
    case optimizer_kind::adamw:
      return bytes_with<adamw>(precision);
    case optimizer_kind::adam:
      return bytes_with<adam>(precision);
    case optimizer_kind::sgd:
      return bytes_with<sgd>(precision);
    case optimizer_kind::lion:
      return bytes_with<lion>(precision);
  }
  throw usage_error("no such optimizer");
}

std::unique_ptr<any_engine> make_engine(const engine_choice& choice,
                                        counted_communicator& communicator,
                                        const model_layout& layout, const engine_options& options) {
  for (const entry& known : catalogue()) {
    if (known.choice.stage == choice.stage && known.choice.precision == choice.precision &&
        known.choice.optimizer == choice.optimizer) {
      return known.make(communicator, layout, choice.weight_decay, options);
    }
  }
  throw usage_error("this build holds no engine of " + name_of(choice));
}

}  // namespace zero::test
