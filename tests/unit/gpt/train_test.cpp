// SPDX-License-Identifier: Apache-2.0
// links: gpt_training
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "computation.hpp"
#include "model_layout.hpp"
#include "program.hpp"
#include "settings.hpp"
#include "unit/gpt/local_model.hpp"
#include "xxh64.hpp"

using namespace gpt;

namespace {

const configuration tiny{.layers = 2, .width = 8, .heads = 2, .context = 8};

std::vector<std::uint8_t> sample_bytes(std::size_t count) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i * i % 251));
  }
  return bytes;
}

std::string usage_text(run_settings settings) {
  try {
    check(settings);
  } catch (const example::usage_failure& failure) {
    return failure.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("training: the learning rate rises for 25 steps and falls to a tenth") {
  const run_settings settings{.steps = 320, .peak_lr = 0.5};
  CHECK(learning_rate(settings, 1) == 0.5 / 25);
  CHECK(learning_rate(settings, 25) == 0.5);
  CHECK(learning_rate(settings, 320) == Approx(0.05).epsilon(1e-12));
  for (std::uint64_t step = 26; step <= 320; ++step) {
    REQUIRE(learning_rate(settings, step) < learning_rate(settings, step - 1));
  }
  CHECK(learning_rate({.steps = 3, .peak_lr = 1.0}, 3) == 3.0 / 25);
  CHECK(learning_rate({.optimizer = "adamw"}, 25) == 2e-3);
  CHECK(learning_rate({.optimizer = "lion"}, 25) < learning_rate({.optimizer = "sgd"}, 25));
}

TEST_CASE("training: settings that do not fit are refused with their values") {
  CHECK(usage_text({}).empty());
  CHECK(usage_text({.ranks = 1, .batch = 3}).empty());
  const std::string batch = usage_text({.ranks = 4, .micro_batches = 3, .batch = 8});
  CHECK((contains(batch, "8") && contains(batch, "4 x 3")));
  CHECK(contains(usage_text({.batch = 0}), "--batch 0"));
  CHECK(contains(usage_text({.ranks = 0}), "--ranks 0"));
  CHECK(contains(usage_text({.ranks = -2}), "--ranks -2"));
  CHECK(contains(usage_text({.steps = 0}), "--steps 0"));
  CHECK(contains(usage_text({.micro_batches = 0}), "--micro-batches 0"));
  CHECK(contains(usage_text({.peak_lr = -1.0}), "--lr -1"));
  CHECK(contains(usage_text({.peak_lr = 0.0}), "--lr 0"));
  CHECK(contains(usage_text({.clip = -0.5}), "--clip -0.5"));
  CHECK(contains(usage_text({.backend = "pigeons"}), "pigeons"));
  CHECK(contains(usage_text({.model = {.width = 10, .heads = 3}}), "width 10, heads 3"));
}

TEST_CASE("training: the layout has unique names, the head's use and the local model's values") {
  const described_model model(tiny, 7);
  const zero::model_layout& layout = model.layout();
  CHECK(layout.trainable_elements() == parameter_count(tiny));
  REQUIRE(layout.uses().size() == layout.unit_count() + 1);
  CHECK(layout.uses().back() == zero::unit_id{0});
  gpt_test::local_model<float> local(tiny, 1, tiny.context, 7);
  std::set<std::string_view> names;
  for (std::uint32_t t = 0; t < layout.tensor_count(); ++t) {
    const zero::tensor_info info = layout.info(zero::tensor_id{t});
    CHECK(names.insert(info.name).second);
    // In two runs, as two ranks would ask for them.
    std::vector<float> values(info.elements);
    const std::size_t half = values.size() / 2;
    model.initial_values(info, 0, std::span(values).first(half));
    model.initial_values(info, half, std::span(values).subspan(half));
    REQUIRE(values == local.parameters.at(t));
  }
  CHECK(names.count("block1.fc_projection_weight") == 1);
}

TEST_CASE("training: uses of units compute what the local model computes") {
  gpt_test::local_model<float> local(tiny, 2, tiny.context, 3);
  computation uses(tiny, 2);
  const auto text = sample_bytes(100);
  load_batch(text, {1, 1, 0}, uses);
  std::vector<std::uint8_t> tokens;
  std::vector<std::uint8_t> targets;
  for (std::uint64_t s = 0; s < 2; ++s) {
    tokens.insert(tokens.end(), uses.tokens(s).begin(), uses.tokens(s).end());
    targets.insert(targets.end(), uses.targets(s).begin(), uses.targets(s).end());
  }
  const double loss = local.forward(tokens, targets);
  local.backward(tokens, targets, 4.0f);

  const described_model model(tiny, 3);
  const auto pointers_of = [&](std::vector<std::vector<float>>& values, zero::unit_id unit) {
    std::vector<float*> pointers;
    for (const zero::tensor_id tensor : model.layout().tensors(unit)) {
      pointers.push_back(values.at(tensor.value).data());
    }
    return pointers;
  };
  auto gradients = local.gradients;
  for (auto& gradient : gradients) {
    gradient.assign(gradient.size(), 0.0f);
  }
  const auto schedule = model.layout().uses();
  const auto constant = [](const std::vector<float*>& pointers) {
    return std::vector<const float*>(pointers.begin(), pointers.end());
  };
  for (std::size_t use = 0; use < schedule.size(); ++use) {
    uses.forward(use, constant(pointers_of(local.parameters, schedule[use])));
  }
  CHECK(uses.mean_loss() == loss);
  for (std::size_t use = schedule.size(); use-- > 0;) {
    uses.backward(use, constant(pointers_of(local.parameters, schedule[use])),
                  pointers_of(gradients, schedule[use]), 4.0f);
  }
  CHECK(gradients == local.gradients);
}

TEST_CASE("training: the global batch does not depend on how it is shared out") {
  const auto text = sample_bytes(500);
  computation all(tiny, 8);
  load_batch(text, {5, 9, 0}, all);
  computation share(tiny, 2);
  for (std::uint64_t first = 0; first < 8; first += 2) {
    load_batch(text, {5, 9, first}, share);
    for (std::uint64_t i = 0; i < 2; ++i) {
      CHECK(std::ranges::equal(share.tokens(i), all.tokens(first + i)));
      CHECK(std::ranges::equal(share.targets(i), all.targets(first + i)));
    }
  }
  computation next_step(tiny, 8);
  load_batch(text, {5, 10, 0}, next_step);
  CHECK_FALSE(std::ranges::equal(next_step.tokens(0), all.tokens(0)));
}

TEST_CASE("training: ranks score every byte of the held-out text once") {
  const auto text = sample_bytes(93);
  for (const int ranks : {1, 2, 3, 7}) {
    for (const std::uint64_t sequences : {1U, 2U, 5U}) {
      std::vector<int> seen(text.size());
      for (int rank = 0; rank < ranks; ++rank) {
        heldout_score score(text, tiny.context, rank, ranks, sequences);
        computation model(tiny, sequences);
        CHECK(score.passes() * static_cast<std::uint64_t>(ranks) * sequences >= 12);
        for (std::uint64_t pass = 0; pass < score.passes(); ++pass) {
          score.load(pass, model);
          const std::uint64_t begin =
              (pass * static_cast<std::uint64_t>(ranks) + static_cast<std::uint64_t>(rank)) *
              sequences * tiny.context;
          for (std::uint64_t i = 0; i < sequences * tiny.context; ++i) {
            const std::uint64_t place = begin + i + 1;
            if (place >= text.size()) {
              break;
            }
            CHECK(model.targets(i / tiny.context)[i % tiny.context] == text[place]);
            ++seen[place];
          }
        }
      }
      CAPTURE(ranks, sequences);
      CHECK(seen[0] == 0);
      CHECK(std::vector<int>(seen.begin() + 1, seen.end()) == std::vector<int>(text.size() - 1, 1));
    }
  }
}

TEST_CASE("training: units take turns in one scratch memory") {
  const described_model model(tiny, 1);
  unit_scratch scratch(model.layout());
  const auto embedding = scratch.of(zero::unit_id{0});
  REQUIRE(embedding.size() == 2);
  CHECK(embedding[1] == embedding[0] + 256 * tiny.width);
  CHECK(scratch.of(zero::unit_id{1}).front() == embedding[0]);
  embedding[1][0] = 5;
  CHECK(scratch.zeroed(zero::unit_id{0})[1][0] == 0);
}

TEST_CASE("training: XXH64 gives the published values, in pieces too") {
  CHECK(hex_digits(xxh64{}.value()) == "ef46db3751d8e999");
  const std::string_view text = "abc";
  xxh64 whole;
  whole.add(std::as_bytes(std::span(text)));
  CHECK(hex_digits(whole.value()) == "44bc2cf5ad770999");
  xxh64 pieces;
  pieces.add(std::as_bytes(std::span(text.substr(0, 1))));
  pieces.add({});
  pieces.add(std::as_bytes(std::span(text.substr(1))));
  CHECK(pieces.value() == whole.value());
}
