// SPDX-License-Identifier: Apache-2.0
// labels: fault
#include <zero/layout.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

using Catch::Matchers::Contains;
using zero::frozen;
using zero::model_layout;
using zero::tensor_id;
using zero::unit_id;
using zero::usage_error;

namespace {

std::vector<std::uint32_t> schedule_of(const model_layout& layout) {
  std::vector<std::uint32_t> order;
  for (const unit_id unit : layout.schedule())
    order.push_back(unit.value);
  return order;
}

constexpr std::uint64_t largest =
    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

}  // namespace

static_assert(std::is_same_v<decltype(zero::tensor_info::elements), std::uint64_t>);

TEST_CASE("tensors start at aligned positions and the gaps are not real elements") {
  model_layout layout({.alignment_bytes = 16});  // 8 elements
  const unit_id unit = layout.add_unit("unit");
  const tensor_id a = layout.add_tensor(unit, "a", {3});
  const tensor_id b = layout.add_tensor(unit, "b", {2, 4});
  const tensor_id c = layout.add_tensor(unit, "c", {5});
  REQUIRE(layout.alignment_bytes() == 16);
  REQUIRE(layout.alignment_elements() == 8);
  REQUIRE(layout.offset(a) == 0);
  REQUIRE(layout.offset(b) == 8);
  REQUIRE(layout.offset(c) == 16);
  REQUIRE(layout.flat_elements(unit, true) == 21);
  REQUIRE(layout.real_elements(unit, true) == 16);
  REQUIRE(layout.trainable_elements() == 16);
  REQUIRE(layout.frozen_elements() == 0);
}

TEST_CASE("the default alignment is 64 bytes of a 16-bit type") {
  model_layout layout;
  const unit_id unit = layout.add_unit("unit");
  layout.add_tensor(unit, "a", {1});
  REQUIRE(layout.offset(layout.add_tensor(unit, "b", {1})) == 32);
}

TEST_CASE("each unit has a trainable and a frozen range of its own") {
  model_layout layout({.alignment_bytes = 8});
  const unit_id one = layout.add_unit("one");
  const unit_id two = layout.add_unit("two");
  const tensor_id a = layout.add_tensor(one, "a", {3}, zero::decay);
  const tensor_id b = layout.add_tensor(one, "b", {5}, zero::decay, frozen);
  const tensor_id c = layout.add_tensor(two, "c", {6}, zero::decay, frozen);
  const tensor_id d = layout.add_tensor(one, "d", {2}, zero::decay, frozen);
  REQUIRE(layout.offset(a) == 0);
  REQUIRE(layout.offset(b) == 0);
  REQUIRE(layout.offset(c) == 0);
  REQUIRE(layout.offset(d) == 8);
  REQUIRE(layout.flat_elements(one, true) == 3);
  REQUIRE(layout.flat_elements(one, false) == 10);
  REQUIRE(layout.real_elements(one, false) == 7);
  REQUIRE(layout.flat_elements(two, true) == 0);
  REQUIRE(layout.trainable_elements() == 3);
  REQUIRE(layout.frozen_elements() == 13);
  REQUIRE_FALSE(layout.info(b).trainable);
}

TEST_CASE("info tells what was declared") {
  model_layout layout;
  const unit_id unit = layout.add_unit("unit");
  const zero::group_id slow = layout.add_group({.lr_multiplier = 0.1, .weight_decay = {}});
  const tensor_id a = layout.add_tensor(unit, "a", {2, 3, 4}, slow);
  const zero::tensor_info info = layout.info(a);
  REQUIRE(info.id == a);
  REQUIRE(info.name == "a");
  REQUIRE(std::vector<std::uint64_t>(info.shape.begin(), info.shape.end()) ==
          std::vector<std::uint64_t>{2, 3, 4});
  REQUIRE(info.elements == 24);
  REQUIRE(info.unit == unit);
  REQUIRE(info.group == slow);
  REQUIRE(info.trainable);
  REQUIRE(layout.group(slow).lr_multiplier == 0.1);
  REQUIRE_FALSE(layout.group(slow).weight_decay);
  REQUIRE(layout.group(zero::no_decay).weight_decay == 0.0);
  REQUIRE_FALSE(layout.group(zero::decay).weight_decay);
  REQUIRE(layout.unit_name(unit) == "unit");
  REQUIRE(layout.group_count() == 3);
}

TEST_CASE("a key depends on the name alone") {
  model_layout small({.alignment_bytes = 2});
  small.add_tensor(small.add_unit("x"), "first", {9});
  const std::uint64_t key = small.info(small.add_tensor({0}, "weight", {4})).key;
  model_layout large;
  REQUIRE(large.info(large.add_tensor(large.add_unit("y"), "weight", {400})).key == key);
  REQUIRE(large.info(large.add_tensor({0}, "weight2", {400})).key != key);
}

TEST_CASE("a shape without extents is one element, an extent of 0 is none") {
  model_layout layout({.alignment_bytes = 2});
  const unit_id unit = layout.add_unit("unit");
  REQUIRE(layout.info(layout.add_tensor(unit, "scalar", {})).elements == 1);
  const tensor_id empty = layout.add_tensor(unit, "empty", {4, 0, largest, largest});
  REQUIRE(layout.info(empty).elements == 0);
  REQUIRE(layout.flat_elements(unit, true) == 1);
}

TEST_CASE("fault_02 tensors of zero size take no place") {
  for (const std::vector<std::uint64_t>& sizes :
       {std::vector<std::uint64_t>{8, 0, 24}, {0}, {0, 0, 1}}) {
    model_layout layout;
    const unit_id unit = layout.add_unit("unit");
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      layout.add_tensor(unit, "t" + std::to_string(i), {sizes[i]});
      sum += sizes[i];
    }
    REQUIRE(layout.real_elements(unit, true) == sum);
    REQUIRE(layout.real_elements_in(unit, true, {0, 1000}) == sum);
    REQUIRE((layout.flat_elements(unit, true) == 0) == (sum == 0));
  }
}

TEST_CASE("real elements inside a part leave the gaps out") {
  model_layout layout({.alignment_bytes = 16});
  const unit_id unit = layout.add_unit("unit");
  layout.add_tensor(unit, "a", {3});
  layout.add_tensor(unit, "frozen", {100}, zero::decay, frozen);
  layout.add_tensor(unit, "b", {5});
  REQUIRE(layout.real_elements_in(unit, true, {0, 13}) == 8);
  REQUIRE(layout.real_elements_in(unit, true, {2, 9}) == 2);
  REQUIRE(layout.real_elements_in(unit, true, {3, 8}) == 0);
  REQUIRE(layout.real_elements_in(unit, true, {13, 64}) == 0);
  REQUIRE(layout.real_elements_in(unit, false, {50, 128}) == 50);
}

TEST_CASE("the schedule is the order of declaration, with further uses") {
  model_layout layout;
  const unit_id embedding = layout.add_unit("embedding");
  layout.add_unit("block");
  REQUIRE(schedule_of(layout) == std::vector<std::uint32_t>{0, 1});
  layout.use(embedding);
  REQUIRE(schedule_of(layout) == std::vector<std::uint32_t>{0, 1, 0});
}

TEST_CASE("a unit with a tied tensor uses the owner's unit first") {
  model_layout layout;
  const unit_id embedding = layout.add_unit("embedding");
  const tensor_id wte = layout.add_tensor(embedding, "wte", {7, 3});
  layout.add_unit("block");
  const unit_id head = layout.add_unit("head");
  const tensor_id tied = layout.add_tensor(head, "head", {7, 3}, zero::decay, {.tied_to = wte});
  REQUIRE(schedule_of(layout) == std::vector<std::uint32_t>{0, 1, 0, 2});
  REQUIRE(layout.tied_units(head).size() == 1);
  REQUIRE(layout.tied_units(head)[0] == embedding);
  REQUIRE(layout.tied_units(embedding).empty());
  REQUIRE(layout.owner(tied) == wte);
  REQUIRE(layout.is_tied(tied));
  REQUIRE_FALSE(layout.is_tied(wte));
  REQUIRE(layout.offset(tied) == layout.offset(wte));
  // Stored and counted once.
  REQUIRE(layout.trainable_elements() == 21);
  REQUIRE(layout.flat_elements(head, true) == 0);
  REQUIRE(layout.real_elements_in(head, true, {0, 100}) == 0);

  SECTION("each further use of the head brings the owner along") {
    layout.use(head);
    REQUIRE(schedule_of(layout) == std::vector<std::uint32_t>{0, 1, 0, 2, 0, 2});
  }
  SECTION("a second tie to the same unit does not") {
    layout.add_tensor(head, "again", {7, 3}, zero::decay, {.tied_to = wte});
    REQUIRE(schedule_of(layout) == std::vector<std::uint32_t>{0, 1, 0, 2});
  }
  SECTION("a tie to a tied tensor is a tie to its owner") {
    const tensor_id chained =
        layout.add_tensor(head, "chained", {7, 3}, zero::decay, {.tied_to = tied});
    REQUIRE(layout.owner(chained) == wte);
    REQUIRE(schedule_of(layout) == std::vector<std::uint32_t>{0, 1, 0, 2});
  }
}

TEST_CASE("a tie inside a unit adds no use") {
  model_layout layout;
  const unit_id unit = layout.add_unit("unit");
  const tensor_id a = layout.add_tensor(unit, "a", {5});
  layout.add_tensor(unit, "b", {5}, zero::decay, {.tied_to = a});
  REQUIRE(schedule_of(layout) == std::vector<std::uint32_t>{0});
  REQUIRE(layout.tied_units(unit).empty());
  REQUIRE(layout.real_elements(unit, true) == 5);
}

TEST_CASE("fault_05 alignments that make no sense are refused at construction") {
  for (const std::uint64_t bytes : {0u, 1u, 3u, 6u, 96u}) {
    REQUIRE_THROWS_WITH(model_layout({.alignment_bytes = bytes}),
                        Contains(std::to_string(bytes)) && Contains("power of two"));
  }
  for (const std::uint64_t bytes : {std::uint64_t{2}, std::uint64_t{64}, std::uint64_t{1} << 40}) {
    REQUIRE(model_layout({.alignment_bytes = bytes}).alignment_bytes() == bytes);
  }
}

TEST_CASE("fault_05 an alignment larger than the model works") {
  model_layout layout({.alignment_bytes = std::uint64_t{1} << 40});
  const unit_id unit = layout.add_unit("unit");
  layout.add_tensor(unit, "a", {3});
  REQUIRE(layout.flat_elements(unit, true) == 3);
}

TEST_CASE("names are unique and not empty") {
  model_layout layout;
  REQUIRE_THROWS_WITH(layout.add_unit(""), Contains("needs a name"));
  const unit_id unit = layout.add_unit("unit");
  REQUIRE_THROWS_WITH(layout.add_unit("unit"), Contains("two units are called \"unit\""));
  layout.add_tensor(unit, "a", {1});
  const unit_id other = layout.add_unit("other");
  REQUIRE_THROWS_WITH(layout.add_tensor(other, "a", {1}), Contains("two tensors are called \"a\""));
  REQUIRE(layout.unit_count() == 2);
  REQUIRE(layout.tensor_count() == 1);
}

TEST_CASE("a tensor that was refused leaves no trace") {
  model_layout layout;
  const unit_id unit = layout.add_unit("unit");
  REQUIRE_THROWS_AS(layout.add_tensor(unit, "a", {largest, 2}), usage_error);
  REQUIRE_THROWS_AS(layout.add_tensor(unit, "a", {1}, zero::decay, {.tied_to = tensor_id{0}}),
                    usage_error);
  REQUIRE(layout.tensor_count() == 0);
  REQUIRE(layout.flat_elements(unit, true) == 0);
  REQUIRE_NOTHROW(layout.add_tensor(unit, "a", {1}));
}

TEST_CASE("ids of another layout are refused with their numbers") {
  model_layout layout;
  REQUIRE_THROWS_WITH(layout.use(unit_id{3}), Contains("unit 3 of 0"));
  REQUIRE_THROWS_WITH(layout.add_tensor(unit_id{1}, "a", {1}), Contains("unit 1 of 0"));
  const unit_id unit = layout.add_unit("unit");
  REQUIRE_THROWS_WITH(layout.add_tensor(unit, "a", {1}, zero::group_id{5}),
                      Contains("group 5 of 2"));
  REQUIRE_THROWS_WITH(layout.info(tensor_id{0}), Contains("tensor 0 of 0"));
  REQUIRE_THROWS_WITH(layout.group(zero::group_id{2}), Contains("group 2 of 2"));
  REQUIRE_THROWS_AS(layout.unit_name(unit_id{1}), usage_error);
  REQUIRE_THROWS_AS(layout.flat_elements(unit_id{1}, true), usage_error);
}

TEST_CASE("ties that do not fit are refused") {
  model_layout layout;
  const unit_id unit = layout.add_unit("unit");
  const tensor_id a = layout.add_tensor(unit, "a", {2, 3});
  REQUIRE_THROWS_WITH(layout.add_tensor(unit, "b", {3, 2}, zero::decay, {.tied_to = a}),
                      Contains("\"b\"") && Contains("another shape"));
  REQUIRE_THROWS_AS(
      layout.add_tensor(unit, "b", {2, 3}, zero::decay, {.trainable = false, .tied_to = a}),
      usage_error);
  REQUIRE_THROWS_WITH(layout.add_tensor(unit, "b", {2, 3}, zero::decay, {.tied_to = tensor_id{9}}),
                      Contains("does not exist yet"));
}

TEST_CASE("fault_37 sizes are 64 bits wide and what leaves them is refused") {
  model_layout layout;
  const unit_id unit = layout.add_unit("unit");
  constexpr std::uint64_t numel = (std::uint64_t{1} << 31) + 5;
  const tensor_id first = layout.add_tensor(unit, "first", {numel});
  const tensor_id second = layout.add_tensor(unit, "second", {1});
  REQUIRE(layout.info(first).elements == 2'147'483'653);
  REQUIRE(layout.offset(second) == 2'147'483'680);
  REQUIRE_THROWS_WITH(layout.add_tensor(unit, "wide", {largest, 2}),
                      Contains("\"wide\"") && Contains("2^63 - 1"));
  REQUIRE_THROWS_WITH(layout.add_tensor(unit, "large", {largest}),
                      Contains("unit \"unit\"") && Contains("2^63 - 1"));
  const unit_id other = layout.add_unit("other");
  REQUIRE_NOTHROW(layout.add_tensor(other, "alone", {largest}));
}
