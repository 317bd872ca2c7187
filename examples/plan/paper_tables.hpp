// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <zero/estimate.hpp>

#include "policies.hpp"
#include "quantities.hpp"

// Tables 1 and 2 of ZeRO (arXiv 1910.02054) from the library's formulas, with the paper's digits.
namespace planning {

inline constexpr std::uint64_t giga = 1'000'000'000;

/// A quotient as table 1 prints it: two decimals below 2, one below 100, both half away from zero
/// (41.25 is 41.3); from 100 on the fraction is cut off (4187.5 is 4187). No trailing zeros.
inline std::string paper_digits(std::uint64_t numerator, std::uint64_t denominator) {
  const std::uint64_t whole = numerator / denominator;
  if (whole >= 100) return std::to_string(whole);
  return decimal(numerator, denominator, whole < 2 ? 2 : 1);
}

/// One stage's column of a table, by the paper's name.
struct paper_stage {
  std::string_view name;
  zero::stage_flags flags;
};
inline constexpr std::array paper_stages{paper_stage{"baseline", zero::flags_of<zero::stage0>()},
                                         paper_stage{"os", zero::flags_of<zero::stage1>()},
                                         paper_stage{"os+g", zero::flags_of<zero::stage2>()},
                                         paper_stage{"os+g+p", zero::flags_of<zero::stage3>()}};

/// Bytes of model states per device.
struct table1_cell {
  std::uint64_t ranks = 0;
  std::string_view model;
  std::uint64_t psi = 0;
  std::string_view stage;
  std::uint64_t all_ranks_bytes = 0;

  /// GB = 10^9 bytes per device.
  std::string printed() const { return paper_digits(all_ranks_bytes, ranks * giga); }
};

/// The 54 cells row by row: 7.5B, 128B and 1T parameters, three stages each.
inline std::vector<table1_cell> table1() {
  struct model {
    std::string_view name;
    std::uint64_t psi;
  };
  constexpr std::array models{model{"7.5B", 7'500'000'000}, model{"128B", 128'000'000'000},
                              model{"1T", 1'000'000'000'000}};
  constexpr std::array<std::uint64_t, 6> sizes{1, 4, 16, 64, 256, 1024};
  std::vector<table1_cell> cells;
  for (const std::uint64_t ranks : sizes) {
    for (const auto& [name, psi] : models) {
      for (std::size_t s = 1; s < paper_stages.size(); ++s) {
        const zero::state_formula formula = zero::formula_of(paper_stages[s].flags, paper_bytes);
        cells.push_back(
            {ranks, name, psi, paper_stages[s].name, formula.all_ranks_bytes(psi, ranks)});
      }
    }
  }
  return cells;
}

/// The largest model for 32 GB per device, 64 devices per model-parallel part.
struct table2_cell {
  static constexpr std::uint64_t budget_bytes = 32 * giga;
  static constexpr std::uint64_t ranks = 64;

  std::uint64_t model_parallel = 1;
  std::string_view stage;
  /// Parameters of the whole model, from the formula. The paper multiplies its rounded first row.
  std::uint64_t psi = 0;
  std::uint64_t rounded_tenths = 0;  ///< of 10^9 parameters, as the paper counts

  /// Billions with one decimal, trillions from half of one.
  std::string printed() const {
    if (rounded_tenths >= 5'000) return decimal(rounded_tenths, 10'000, 1) + "T";
    return decimal(rounded_tenths, 10, 1) + "B";
  }
};

/// The 20 theory cells row by row: model parallelism 1 to 16, baseline and three stages each.
inline std::vector<table2_cell> table2() {
  constexpr std::array<std::uint64_t, 5> sizes{1, 2, 4, 8, 16};
  constexpr std::uint64_t tenth = giga / 10;
  std::vector<table2_cell> cells;
  for (const std::uint64_t parts : sizes) {
    for (const auto& [name, flags] : paper_stages) {
      const std::uint64_t psi = zero::formula_of(flags, paper_bytes)
                                    .largest_model(table2_cell::budget_bytes, table2_cell::ranks);
      cells.push_back({parts, name, parts * psi, parts * ((psi + tenth / 2) / tenth)});
    }
  }
  return cells;
}

/// The tables as text for a terminal.
std::string table1_text();
std::string table2_text();

}  // namespace planning
