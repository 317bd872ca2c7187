// SPDX-License-Identifier: Apache-2.0
#include "run_json.hpp"

#include <nlohmann/json.hpp>

namespace gpt {
namespace {

using json = nlohmann::ordered_json;

json to_object(const zero::held_bytes& held, bool accumulates) {
  json object = {{"parameters", held.parameters},
                 {"gradients", held.gradients},
                 {"optimizer", held.optimizer},
                 {"padding", held.padding},
                 {"transient", held.transient}};
  if (accumulates) {
    object["accumulation"] = held.accumulation;
  }
  return object;
}

json to_array(const std::vector<zero::held_bytes>& ranks, bool accumulates) {
  json array = json::array();
  for (const zero::held_bytes& held : ranks) {
    array.push_back(to_object(held, accumulates));
  }
  return array;
}

json to_object(const zero::moved_elements& moved) {
  return {{"reduce_scatter", moved.reduce_scatter},
          {"all_gather", moved.all_gather},
          {"all_reduce", moved.all_reduce},
          {"padding", moved.padding},
          {"total", moved.total()}};
}

json to_object(const run_record& record) {
  const run_settings& settings = record.settings;
  const bool accumulates = settings.micro_batches > 1;
  return {{"schema", "zero.training_run/1"},
          {"stage", settings.stage},
          {"precision", settings.precision},
          {"optimizer", settings.optimizer},
          {"backend", settings.backend},
          {"ranks", settings.ranks},
          {"steps", settings.steps},
          {"micro_batches", settings.micro_batches},
          {"seed", settings.seed},
          {"tokens_per_step", tokens_per_step(settings)},
          {"psi", record.psi},
          {"padding_elements", record.padding_elements},
          {"held", to_array(record.held, accumulates)},
          {"predicted", to_array(record.predicted, accumulates)},
          {"moved", to_object(record.moved)},
          {"predicted_moved", to_object(record.predicted_moved)},
          {"wire_bytes", record.moved.wire_bytes},
          {"first_loss", record.first_loss()},
          {"last_loss", record.last_loss()},
          {"heldout_loss", record.heldout_loss},
          {"unigram_heldout", record.unigram_heldout},
          {"bigram_heldout", record.bigram_heldout},
          {"skipped_steps", record.skipped_steps},
          {"tokens_per_second", record.tokens_per_second},
          {"parameters_xxh64", record.parameters_xxh64},
          {"masters_xxh64", record.masters_xxh64}};
}

}  // namespace

std::string to_json(std::span<const run_record> records) {
  json rows = json::array();
  for (const run_record& record : records) {
    rows.push_back(to_object(record));
  }
  return rows.dump(2) + "\n";
}

}  // namespace gpt
