// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <zero/model_state.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>
#include <zero/stage.hpp>

using namespace zero;

namespace {

// Near misses: each type breaks one requirement, either by hiding a member or by giving it another
// meaning.

// Stage.
struct good_stage : stage3 {};
class hides_stage_name : public stage3 {
  static constexpr std::string_view name = "3";
};
class hides_optimizer_state_flag : public stage3 {
  static constexpr bool partitions_optimizer_state = true;
};
class hides_gradients_flag : public stage3 {
  static constexpr bool partitions_gradients = true;
};
class hides_parameters_flag : public stage3 {
  static constexpr bool partitions_parameters = true;
};
class hides_reshard_flag : public stage3 {
  static constexpr bool reshards_after_forward = true;
};
struct stage_name_is_a_number : stage3 {
  static constexpr int name = 3;
};
struct optimizer_state_flag_is_text : stage3 {
  static constexpr std::string_view partitions_optimizer_state = "yes";
};
struct gradients_flag_is_text : stage3 {
  static constexpr std::string_view partitions_gradients = "yes";
};
struct parameters_flag_is_text : stage3 {
  static constexpr std::string_view partitions_parameters = "yes";
};
struct reshard_flag_is_text : stage3 {
  static constexpr std::string_view reshards_after_forward = "yes";
};
// Flags that are not monotone.
struct gradients_without_optimizer_state : stage0 {
  static constexpr bool partitions_gradients = true;
};
struct parameters_without_gradients : stage1 {
  static constexpr bool partitions_parameters = true;
};
struct reshards_what_is_not_partitioned : stage2 {
  static constexpr bool reshards_after_forward = true;
};

// Precision.
struct good_precision : bf16_mixed {};
class hides_precision_name : public bf16_mixed {
  static constexpr std::string_view name = "x";
};
class hides_parameter_type : public bf16_mixed {
  using parameter_type = bfloat16;
};
class hides_gradient_type : public bf16_mixed {
  using gradient_type = bfloat16;
};
class hides_accumulation_type : public bf16_mixed {
  using accumulation_type = float;
};
class hides_moment_type : public bf16_mixed {
  using moment_type = float;
};
class hides_compute_type : public bf16_mixed {
  using compute_type = float;
};
class hides_master_storage : public bf16_mixed {
  using master_storage = float;
};
class hides_loss_scaling : public bf16_mixed {
  using loss_scaling = no_loss_scaling;
};
class hides_scaling_order : public bf16_mixed {
  static constexpr bool scales_before_rounding = false;
};
struct precision_name_is_a_number : bf16_mixed {
  static constexpr int name = 16;
};
struct scaling_order_is_text : bf16_mixed {
  static constexpr std::string_view scales_before_rounding = "no";
};
struct loss_scaling_without_flag : bf16_mixed {
  struct loss_scaling {};
};
struct loss_scaling_flag_is_text : bf16_mixed {
  struct loss_scaling {
    static constexpr std::string_view is_dynamic = "no";
  };
};
struct computes_in_integers : bf16_mixed {
  using compute_type = int;
};
struct computes_in_bfloat16 : bf16_mixed {
  using compute_type = bfloat16;
};
class hides_load : public bf16_mixed {
  using bf16_mixed::load;
};
class hides_store : public bf16_mixed {
  using bf16_mixed::store;
};
struct loads_text : bf16_mixed {
  static std::string_view load(bfloat16, float);
};
struct stores_without_master : bf16_mixed {
  static void store(float, bfloat16&);
};
struct keeps_a_master_it_cannot_load : fp32 {
  using master_storage = std::string_view;
};

}  // namespace

TEST_CASE("stage: the shipped models and one derived from them") {
  STATIC_REQUIRE(Stage<stage0>);
  STATIC_REQUIRE(Stage<stage1>);
  STATIC_REQUIRE(Stage<stage2>);
  STATIC_REQUIRE(Stage<stage3>);
  STATIC_REQUIRE(Stage<stage3_keep_gathered>);
  STATIC_REQUIRE(Stage<good_stage>);
}

TEST_CASE("stage: each requirement is one") {
  STATIC_REQUIRE(!Stage<hides_stage_name>);
  STATIC_REQUIRE(!Stage<hides_optimizer_state_flag>);
  STATIC_REQUIRE(!Stage<hides_gradients_flag>);
  STATIC_REQUIRE(!Stage<hides_parameters_flag>);
  STATIC_REQUIRE(!Stage<hides_reshard_flag>);
  STATIC_REQUIRE(!Stage<stage_name_is_a_number>);
  STATIC_REQUIRE(!Stage<optimizer_state_flag_is_text>);
  STATIC_REQUIRE(!Stage<gradients_flag_is_text>);
  STATIC_REQUIRE(!Stage<parameters_flag_is_text>);
  STATIC_REQUIRE(!Stage<reshard_flag_is_text>);
  STATIC_REQUIRE(!Stage<gradients_without_optimizer_state>);
  STATIC_REQUIRE(!Stage<parameters_without_gradients>);
  STATIC_REQUIRE(!Stage<reshards_what_is_not_partitioned>);
  STATIC_REQUIRE(!Stage<int>);
  STATIC_REQUIRE(!Stage<bf16_mixed>);
}

TEST_CASE("precision: the shipped models and one derived from them") {
  STATIC_REQUIRE(Precision<fp32>);
  STATIC_REQUIRE(Precision<bf16_mixed>);
  STATIC_REQUIRE(Precision<fp16_mixed>);
  STATIC_REQUIRE(Precision<bf16_mixed_fp32_gradients>);
  STATIC_REQUIRE(Precision<bf16_remainder>);
  STATIC_REQUIRE(Precision<good_precision>);
}

TEST_CASE("precision: each requirement is one") {
  STATIC_REQUIRE(!Precision<hides_precision_name>);
  STATIC_REQUIRE(!Precision<hides_parameter_type>);
  STATIC_REQUIRE(!Precision<hides_gradient_type>);
  STATIC_REQUIRE(!Precision<hides_accumulation_type>);
  STATIC_REQUIRE(!Precision<hides_moment_type>);
  STATIC_REQUIRE(!Precision<hides_compute_type>);
  STATIC_REQUIRE(!Precision<hides_master_storage>);
  STATIC_REQUIRE(!Precision<hides_loss_scaling>);
  STATIC_REQUIRE(!Precision<hides_scaling_order>);
  STATIC_REQUIRE(!Precision<precision_name_is_a_number>);
  STATIC_REQUIRE(!Precision<scaling_order_is_text>);
  STATIC_REQUIRE(!Precision<loss_scaling_without_flag>);
  STATIC_REQUIRE(!Precision<loss_scaling_flag_is_text>);
  STATIC_REQUIRE(!Precision<computes_in_integers>);
  STATIC_REQUIRE(!Precision<computes_in_bfloat16>);
  STATIC_REQUIRE(!Precision<hides_load>);
  STATIC_REQUIRE(!Precision<hides_store>);
  STATIC_REQUIRE(!Precision<loads_text>);
  STATIC_REQUIRE(!Precision<stores_without_master>);
  STATIC_REQUIRE(!Precision<keeps_a_master_it_cannot_load>);
  STATIC_REQUIRE(!Precision<int>);
  STATIC_REQUIRE(!Precision<stage1>);
}

TEST_CASE("masters exist where a policy stores something beside the parameter") {
  STATIC_REQUIRE(!has_master<fp32>);
  STATIC_REQUIRE(has_master<bf16_mixed>);
  STATIC_REQUIRE(has_master<bf16_remainder>);
  STATIC_REQUIRE(std::is_same_v<master_type<fp32>, no_master>);
  STATIC_REQUIRE(std::is_same_v<master_type<bf16_mixed>, float>);
  STATIC_REQUIRE(std::is_same_v<master_type<bf16_remainder>, std::uint16_t>);
}

TEST_CASE("bytes per element follow from the policies' types") {
  STATIC_REQUIRE(bytes_of<fp32, adamw>().optimizer() == 8);
  STATIC_REQUIRE(bytes_of<bf16_mixed, adamw>().optimizer() == 12);
  STATIC_REQUIRE(bytes_of<bf16_remainder, adamw>().optimizer() == 10);
  STATIC_REQUIRE(bytes_of<bf16_mixed, sgd>().optimizer() == 8);
  STATIC_REQUIRE(bytes_of<bf16_mixed_fp32_gradients, adamw>().gradient == 4);
  STATIC_REQUIRE(bytes_of<fp16_mixed, adamw>().parameter == 2);
  STATIC_REQUIRE(bytes_of<bf16_mixed, adamw>().accumulation == 4);
}
