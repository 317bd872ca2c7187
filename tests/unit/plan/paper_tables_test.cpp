// SPDX-License-Identifier: Apache-2.0
// links: plan_core
#include "paper_tables.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace planning;

// The digits as printed in ZeRO (arXiv 1910.02054).

TEST_CASE("the paper's rule for digits") {
  REQUIRE(paper_digits(188, 100) == "1.88");
  REQUIRE(paper_digits(1875, 1000) == "1.88");  // half away from zero
  REQUIRE(paper_digits(46875, 100000) == "0.47");
  REQUIRE(paper_digits(11719, 100000) == "0.12");
  REQUIRE(paper_digits(4125, 100) == "41.3");  // where printf gives 41.2
  REQUIRE(paper_digits(35625, 1000) == "35.6");
  REQUIRE(paper_digits(2, 1) == "2");
  REQUIRE(paper_digits(30, 1) == "30");
  REQUIRE(paper_digits(5135, 10) == "513");  // cut off from 100 on
  REQUIRE(paper_digits(41875, 10) == "4187");
  REQUIRE(paper_digits(257'999, 1000) == "257");
  REQUIRE(paper_digits(0, 1) == "0");
}

TEST_CASE("all 54 cells of table 1") {
  const std::vector<std::string> expected{
      "120",  "120",  "120",  "2048", "2048", "2048", "16000", "16000", "16000",  // N = 1
      "52.5", "41.3", "30",   "896",  "704",  "512",  "7000",  "5500",  "4000",   // 4
      "35.6", "21.6", "7.5",  "608",  "368",  "128",  "4750",  "2875",  "1000",   // 16
      "31.4", "16.6", "1.88", "536",  "284",  "32",   "4187",  "2218",  "250",    // 64
      "30.4", "15.4", "0.47", "518",  "263",  "8",    "4046",  "2054",  "62.5",   // 256
      "30.1", "15.1", "0.12", "513",  "257",  "2",    "4011",  "2013",  "15.6"};  // 1024
  std::vector<std::string> printed;
  for (const table1_cell& cell : table1())
    printed.push_back(cell.printed());
  REQUIRE(printed == expected);
}

TEST_CASE("table 1 counts exactly") {
  const std::vector<table1_cell> cells = table1();
  const table1_cell& cell = cells[3 * 9 + 6];  // N = 64, 1T, os
  REQUIRE(cell.psi == 1'000'000'000'000);
  REQUIRE(cell.ranks == 64);
  REQUIRE(cell.model == "1T");
  REQUIRE(cell.stage == "os");
  REQUIRE(cell.all_ranks_bytes / 64 == 4'187'500'000'000);
}

TEST_CASE("all theory cells of table 2") {
  const std::vector<std::string> expected{"2B",  "7.6B",   "14.4B",  "128B",  // MP = 1
                                          "4B",  "15.2B",  "28.8B",  "256B",  // 2
                                          "8B",  "30.4B",  "57.6B",  "0.5T",  // 4
                                          "16B", "60.8B",  "115.2B", "1T",    // 8
                                          "32B", "121.6B", "230.4B", "2T"};   // 16
  std::vector<std::string> printed;
  for (const table2_cell& cell : table2())
    printed.push_back(cell.printed());
  REQUIRE(printed == expected);
}

TEST_CASE("the models of table 2 fit, and one parameter more does not") {
  for (const table2_cell& cell : table2()) {
    for (const paper_stage& stage : paper_stages) {
      if (stage.name != cell.stage)
        continue;
      const zero::state_formula formula = zero::formula_of(stage.flags, paper_bytes);
      const std::uint64_t part = cell.psi / cell.model_parallel;
      constexpr std::uint64_t budget = table2_cell::budget_bytes * table2_cell::ranks;
      REQUIRE(formula.all_ranks_bytes(part, table2_cell::ranks) <= budget);
      REQUIRE(formula.all_ranks_bytes(part + 1, table2_cell::ranks) > budget);
    }
  }
}
