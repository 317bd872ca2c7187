// SPDX-License-Identifier: Apache-2.0
// links: plan_core
#include "layout_json.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "gpt_layout.hpp"
#include "program.hpp"

using namespace planning;
using Catch::Matchers::Contains;

namespace {

/// What parse_layout says about a text; empty when it takes it.
std::string complaint(const std::string& text) {
  try {
    parse_layout(text, "file.json");
    return {};
  } catch (const example::usage_failure& failure) {
    return failure.what();
  }
}

std::string with_units(const std::string& units) {
  return R"({"schema": "zero.layout/1", "units": )" + units + "}";
}

std::string with_tensor(const std::string& tensor) {
  return with_units(R"([{"name": "u", "tensors": [{"name": "a", "shape": [2]}, )" + tensor + "]}]");
}

}  // namespace

TEST_CASE("a layout file says what a program would declare") {
  const zero::model_layout layout = parse_layout(with_units(R"([{"name": "one", "tensors": [
                       {"name": "wte", "shape": [3, 4], "group": "no_decay"},
                       {"name": "fixed", "shape": [], "trainable": false}]},
                     {"name": "two", "tensors": [
                       {"name": "head", "shape": [3, 4], "trainable": true, "group": "decay",
                        "tied_to": "wte"},
                       {"name": "empty", "shape": [0], "tied_to": null}]},
                     {"name": "three", "tensors": []}])"),
                                                 "file.json", {.alignment_bytes = 16});
  REQUIRE(layout.unit_count() == 3);
  REQUIRE(layout.tensor_count() == 4);
  REQUIRE(layout.alignment_bytes() == 16);
  REQUIRE(layout.trainable_elements() == 12);
  REQUIRE(layout.frozen_elements() == 1);
  REQUIRE(layout.info(zero::tensor_id{0}).group == zero::no_decay);
  REQUIRE(layout.info(zero::tensor_id{1}).group == zero::decay);
  REQUIRE(layout.owner(zero::tensor_id{2}) == zero::tensor_id{0});
  REQUIRE(layout.schedule().size() == 4);
}

TEST_CASE("a layout survives being written and read") {
  const zero::model_layout before = make_gpt_layout({2, 8, 20, 6});
  const std::string text = layout_text(before);
  const zero::model_layout after = parse_layout(text, "file.json");
  REQUIRE(layout_text(after) == text);
  REQUIRE(after.schedule().size() == before.schedule().size());
  for (std::uint32_t t = 0; t < before.tensor_count(); ++t) {
    const zero::tensor_id id{t};
    REQUIRE(after.info(id).name == before.info(id).name);
    REQUIRE(after.offset(id) == before.offset(id));
    REQUIRE(after.owner(id) == before.owner(id));
    REQUIRE(after.info(id).group == before.info(id).group);
  }
}

TEST_CASE("what is no layout is refused in one line that says where and what") {
  struct bad {
    std::string text;
    std::vector<std::string> says;
  };
  const std::string wide = R"({"name": "b", "shape": [9223372036854775807, 2]})";
  const std::vector<bad> files{
      {"", {"not JSON"}},
      {"{", {"not JSON", "line 1"}},
      {"[]", {"the file", "object", "array"}},
      {"\xff\xfe", {"not JSON"}},
      {R"({"units": []})", {"\"schema\" is missing"}},
      {R"({"schema": "zero.layout/1"})", {"\"units\" is missing"}},
      {R"({"schema": "zero.layout/2", "units": []})", {"zero.layout/2", "zero.layout/1"}},
      {R"({"schema": 1, "units": []})", {"schema", "string", "number"}},
      {R"({"schema": "zero.layout/1", "units": [], "extra": 1})", {"unknown key \"extra\""}},
      {R"({"schema": "zero.layout/1", "units": [], "units": []})", {"\"units\"", "twice"}},
      {with_units("{}"), {"units", "array", "object"}},
      {with_units("[3]"), {"units[0]", "object", "number"}},
      {with_units(R"([{"name": "u"}])"), {"units[0]", "\"tensors\" is missing"}},
      {with_units(R"([{"name": "", "tensors": []}])"), {"units[0]", "needs a name"}},
      {with_units(R"([{"name": "u", "tensors": []}, {"name": "u", "tensors": []}])"),
       {"units[1]", "two units", "\"u\""}},
      {with_units(R"([{"name": "u", "tensors": {}}])"), {"units[0].tensors", "array"}},
      {with_units(R"([{"name": "u", "tensors": [], "uses": 2}])"), {"unknown key \"uses\""}},
      {with_tensor(R"({"shape": [1]})"), {"units[0].tensors[1]", "\"name\" is missing"}},
      {with_tensor(R"({"name": "b"})"), {"\"shape\" is missing"}},
      {with_tensor(R"({"name": 7, "shape": []})"), {"name", "string"}},
      {with_tensor(R"({"name": "", "shape": []})"), {"needs a name"}},
      {with_tensor(R"({"name": "a", "shape": []})"), {"two tensors", "\"a\""}},
      {with_tensor(R"({"name": "b", "shape": 3})"), {"shape", "array"}},
      {with_tensor(R"({"name": "b", "shape": [-3]})"), {"tensors[1].shape[0]", "-3"}},
      {with_tensor(R"({"name": "b", "shape": [1, 2.5]})"), {"shape[1]", "2.5"}},
      {with_tensor(R"({"name": "b", "shape": ["4"]})"), {"shape[0]", "string"}},
      {with_tensor(R"({"name": "b", "shape": [18446744073709551616]})"), {"shape[0]"}},
      {with_tensor(R"({"name": "b", "shape": [1e999]})"), {"file.json"}},
      {with_tensor(wide), {"2^63 - 1"}},
      {with_tensor(R"({"name": "b", "shape": [], "trainable": "yes"})"), {"true or false"}},
      {with_tensor(R"({"name": "b", "shape": [], "group": "slow"})"), {"slow", "no_decay"}},
      {with_tensor(R"({"name": "b", "shape": [], "group": 1})"), {"group", "string"}},
      {with_tensor(R"({"name": "b", "shape": [2], "tied_to": "zz"})"), {"tied_to", "\"zz\""}},
      {with_tensor(R"({"name": "b", "shape": [2], "tied_to": "b"})"), {"no earlier tensor"}},
      {with_tensor(R"({"name": "b", "shape": [3], "tied_to": "a"})"), {"another shape"}},
      {with_tensor(R"({"name": "b", "shape": [2], "tied_to": "a", "trainable": false})"),
       {"trainable"}},
      {with_tensor(R"({"name": "b", "name": "c", "shape": []})"), {"\"name\"", "twice"}},
      {with_tensor(R"({"name": "b\nc", "shape": [1]})"), {"control character"}},
      {with_tensor(R"({"name": "\u001b[2J", "shape": [1]})"), {"control character"}},
      {std::string(100'000, '['), {"not JSON"}},
  };
  for (const bad& file : files) {
    const std::string text = complaint(file.text);
    CAPTURE(file.text.substr(0, 200), text);
    REQUIRE_THAT(text, Catch::Matchers::StartsWith("file.json: "));
    REQUIRE(text.find('\n') == std::string::npos);
    REQUIRE(text.size() < 400);
    for (const std::string& part : file.says)
      REQUIRE_THAT(text, Contains(part));
  }
}

TEST_CASE("a file that is not there is absent, not wrong") {
  REQUIRE_THROWS_AS(read_layout("/nonexistent/layout.json"), example::absent_failure);
  REQUIRE_THROWS_AS(read_layout("/"), example::absent_failure);
}

TEST_CASE("sizes of a GPT are read as four numbers") {
  REQUIRE(parse_gpt("4,128,256,64").layers == 4);
  REQUIRE(parse_gpt("4,128,256,64").context == 64);
  for (const char* text :
       {"", "4", "4,128,256", "4,128,256,64,1", "0,1,1,1", "4,128,256,x", "4,-1,256,64",
        "4, 128,256,64", "4,128,256,64 ", "1,2000000000,1,1", "200000,1,1,1", "4;128;256;64"}) {
    CAPTURE(text);
    REQUIRE_THROWS_AS(parse_gpt(text), example::usage_failure);
  }
}
