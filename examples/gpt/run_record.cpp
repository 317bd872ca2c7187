// SPDX-License-Identifier: Apache-2.0
#include "run_record.hpp"

#include <algorithm>
#include <numeric>
#include <span>

#include <zero/estimate.hpp>
#include <zero/partition.hpp>

#include "xxh64.hpp"

namespace gpt {
namespace {

using zero::collective;

/// Every rank's row of numbers, in rank order. A sum of doubles in which all terms but one are zero
/// is exact up to 2^53.
std::vector<std::vector<double>> gather_rows(rank_communicator& communicator,
                                             const std::vector<double>& own) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<double> all(ranks * own.size());
  const auto position = static_cast<std::size_t>(communicator.rank()) * own.size();
  std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(position));
  communicator.all_reduce(zero::range<double, zero::full>(all.data(), all.size()), {}).wait({});
  std::vector<std::vector<double>> rows(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto row = std::span(all).subspan(r * own.size(), own.size());
    rows[r].assign(row.begin(), row.end());
  }
  return rows;
}

zero::moved_elements moved_of(const zero::traffic_counters& counted) {
  zero::moved_elements moved;
  moved.reduce_scatter = counted[collective::reduce_scatter].elements;
  moved.all_gather = counted[collective::all_gather].elements;
  moved.all_reduce = counted[collective::all_reduce].elements;
  moved.broadcast = counted[collective::broadcast].elements;
  moved.padding = counted[collective::reduce_scatter].padding_elements +
                  counted[collective::all_gather].padding_elements;
  moved.wire_bytes = counted.wire_bytes();
  return moved;
}

std::vector<double> row_of(const rank_run& run) {
  std::vector<double> row;
  const auto add = [&](std::uint64_t value) { row.push_back(static_cast<double>(value)); };
  const zero::moved_elements moved = moved_of(run.counted);
  for (const std::uint64_t value :
       {run.held.parameters, run.held.gradients, run.held.optimizer, run.held.accumulation,
        run.held.padding, run.held.transient, run.allocated_bytes, moved.reduce_scatter,
        moved.all_gather, moved.all_reduce, moved.broadcast, moved.padding, moved.wire_bytes,
        std::uint64_t{run.booked == moved}, run.parameters_hash >> 32,
        run.parameters_hash & 0xffffffff, run.masters_hash >> 32, run.masters_hash & 0xffffffff}) {
    add(value);
  }
  return row;
}

/// What row_of wrote, read back.
struct measured_rank {
  zero::held_bytes held;
  std::uint64_t allocated_bytes;
  zero::moved_elements moved;
  bool meter_and_ledger_agree;
  std::uint64_t parameters_hash;
  std::uint64_t masters_hash;

  explicit measured_rank(const std::vector<double>& row) {
    std::size_t position = 0;
    const auto next = [&] { return static_cast<std::uint64_t>(row.at(position++)); };
    for (std::uint64_t* field :
         {&held.parameters, &held.gradients, &held.optimizer, &held.accumulation, &held.padding,
          &held.transient, &allocated_bytes, &moved.reduce_scatter, &moved.all_gather,
          &moved.all_reduce, &moved.broadcast, &moved.padding, &moved.wire_bytes}) {
      *field = next();
    }
    meter_and_ledger_agree = next() == 1;
    for (std::uint64_t* hash : {&parameters_hash, &masters_hash}) {
      *hash = next() << 32;
      *hash |= next();
    }
  }
};

zero::plan_request request_of(const run_settings& settings, const trainer_entry& trainer,
                              int rank) {
  return {trainer.flags, trainer.bytes, settings.ranks, rank, accumulation_of(settings)};
}

void add_measured(run_record& record, const std::vector<measured_rank>& ranks) {
  const auto fail = [&](std::size_t rank, const std::string& what) {
    record.failures.push_back("rank " + std::to_string(rank) + ": " + what);
  };
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const measured_rank& rank = ranks[r];
    record.held.push_back(rank.held);
    if (rank.held != record.predicted[r]) {
      fail(r, std::to_string(rank.held.total()) + " bytes are held, " +
                  std::to_string(record.predicted[r].total()) + " were predicted");
    }
    if (rank.allocated_bytes != rank.held.total()) {
      fail(r, std::to_string(rank.allocated_bytes) + " bytes were allocated, the ledger has " +
                  std::to_string(rank.held.total()));
    }
    if (rank.moved != record.predicted_moved) {
      fail(r, std::to_string(rank.moved.total()) + " elements were moved, " +
                  std::to_string(record.predicted_moved.total()) + " were predicted");
    }
    if (!rank.meter_and_ledger_agree) {
      fail(r, "meter and ledger have counted different traffic");
    }
    if (rank.parameters_hash != ranks[0].parameters_hash ||
        rank.masters_hash != ranks[0].masters_hash) {
      fail(r, "its values differ from those of rank 0");
    }
  }
}

void check_against_paper(run_record& record) {
  const paper_figures paper = paper_of(record);
  if (model_state_bytes(record) != paper.all_ranks_bytes) {
    record.failures.push_back("all ranks hold " + std::to_string(model_state_bytes(record)) +
                              " bytes of model states, the paper says " +
                              std::to_string(paper.all_ranks_bytes));
  }
  if (record.moved.total() != paper.volume) {
    record.failures.push_back(std::to_string(record.moved.total()) +
                              " elements were moved, the paper says " +
                              std::to_string(paper.volume));
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The first steps are left out: they warm the caches.
double median_step_seconds(const rank_run& run) {
  const std::size_t first = run.step_seconds.size() > 3 ? 3 : 0;
  return median(
      {run.step_seconds.begin() + static_cast<std::ptrdiff_t>(first), run.step_seconds.end()});
}

std::uint64_t padding_of(const zero::model_layout& layout, int ranks) {
  std::uint64_t padding = 0;
  for (std::uint32_t u = 0; u < layout.unit_count(); ++u) {
    const zero::unit_id unit{u};
    const zero::partition cut =
        zero::make_partition(layout.flat_elements(unit, true), ranks, layout.alignment_elements());
    padding += cut.padded_elements() - layout.real_elements(unit, true);
  }
  return padding;
}

/// "2 Psi + 14 Psi/N"; terms that are zero are left out.
std::string formula_text(const zero::state_formula& formula) {
  std::string text;
  if (formula.replicated != 0) {
    text = std::to_string(formula.replicated) + " Psi";
  }
  if (formula.partitioned != 0) {
    text += (text.empty() ? "" : " + ") + std::to_string(formula.partitioned) + " Psi/N";
  }
  return text;
}

}  // namespace

double run_record::last_loss() const {
  const std::size_t count = std::min<std::size_t>(losses.size(), 10);
  const double sum =
      std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0);
  return sum / static_cast<double>(count);
}

paper_figures paper_of(const run_record& record) {
  const run_settings& settings = record.settings;
  const trainer_entry& trainer =
      find_trainer(settings.stage, settings.precision, settings.optimizer);
  const auto ranks = static_cast<std::uint64_t>(settings.ranks);
  const zero::state_formula bytes = zero::formula_of(trainer.flags, trainer.bytes);
  const zero::volume_formula volume =
      zero::volume_of(trainer.flags, settings.micro_batches, accumulation_of(settings));
  paper_figures paper;
  paper.bytes_formula = formula_text(bytes);
  paper.all_ranks_bytes = bytes.all_ranks_bytes(record.psi, ranks);
  paper.rank_bytes = bytes.rank_bytes(record.psi, ranks);
  if (ranks > 1) {
    paper.volume_formula = std::to_string(volume.elements(1)) + " Psi";
    paper.volume = volume.elements(record.psi);
  } else {
    paper.volume_formula = "0";
  }
  return paper;
}

std::uint64_t model_state_bytes(const run_record& record) {
  std::uint64_t sum = 0;
  for (const zero::held_bytes& rank : record.held) {
    sum += rank.model_states();
  }
  return sum;
}

run_record combine(rank_communicator& communicator, const training_job& job,
                   const trainer_entry& trainer, const rank_run& own) {
  run_record record;
  record.settings = job.settings;
  const zero::model_layout& layout = job.model.layout();
  record.psi = layout.trainable_elements();
  record.padding_elements = padding_of(layout, job.settings.ranks);
  for (int r = 0; r < job.settings.ranks; ++r) {
    record.predicted.push_back(
        zero::rank_estimate(layout, request_of(job.settings, trainer, r)).held());
  }
  record.predicted_moved = zero::rank_estimate(layout, request_of(job.settings, trainer, 0))
                               .moved(job.settings.micro_batches);

  std::vector<measured_rank> ranks;
  for (const std::vector<double>& row : gather_rows(communicator, row_of(own))) {
    ranks.emplace_back(row);
  }
  record.moved = ranks[0].moved;
  add_measured(record, ranks);
  check_against_paper(record);
  record.parameters_xxh64 = hex_digits(ranks[0].parameters_hash);
  record.masters_xxh64 = trainer.has_masters ? hex_digits(ranks[0].masters_hash) : "";

  record.losses.assign(own.losses.size(), 0.0);
  for (const std::vector<double>& row : gather_rows(communicator, own.losses)) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      record.losses[i] += row[i] / static_cast<double>(job.settings.ranks);
    }
  }
  // Rank 0's step time: steps end together, in a collective.
  const auto sums = gather_rows(communicator, {own.heldout_nats, median_step_seconds(own)});
  for (const std::vector<double>& row : sums) {
    record.heldout_loss += row[0] / static_cast<double>(job.text.heldout.size() - 1);
  }
  record.tokens_per_second = static_cast<double>(tokens_per_step(job.settings)) / sums[0][1];
  record.unigram_heldout = unigram_cross_entropy(job.text.training, job.text.heldout);
  record.bigram_heldout = bigram_cross_entropy(job.text.training, job.text.heldout);
  record.skipped_steps = own.skipped_steps;
  record.sample = own.sample;
  return record;
}

}  // namespace gpt
