// SPDX-License-Identifier: Apache-2.0
#include "paper_tables.hpp"

#include "text_table.hpp"

namespace planning {
namespace {

/// Cells in rows: a new row begins where `label` changes.
template <class Cell, class Label>
void add_rows(example::text_table& table, const std::vector<Cell>& cells, Label label) {
  std::vector<std::string> row;
  for (const Cell& cell : cells) {
    const std::vector<std::string> first = label(cell);
    if (!row.empty() && row.front() != first.front()) {
      table.add(row);
      row.clear();
    }
    if (row.empty())
      row = first;
    row.push_back(cell.printed());
  }
  table.add(row);
}

}  // namespace

std::string table1_text() {
  const std::vector<table1_cell> cells = table1();
  example::text_table table(0);
  std::vector<std::string> header{"N"};
  for (const table1_cell& cell : cells) {
    if (cell.ranks != cells.front().ranks)
      break;
    header.push_back(std::string(cell.model) + " " + std::string(cell.stage));
  }
  table.add(header);
  add_rows(table, cells, [](const table1_cell& cell) {
    return std::vector<std::string>{std::to_string(cell.ranks)};
  });
  return "Table 1: GB (10^9 bytes) of model states per device, mixed-precision Adam\n" +
         table.text();
}

std::string table2_text() {
  example::text_table table(0);
  table.add({"MP", "GPUs", "baseline", "os", "os+g", "os+g+p"});
  add_rows(table, table2(), [](const table2_cell& cell) {
    return std::vector<std::string>{std::to_string(cell.model_parallel),
                                    std::to_string(cell.model_parallel * table2_cell::ranks)};
  });
  return "Table 2: largest model in theory, 32 GB per device, N = 64 per model-parallel part\n" +
         table.text();
}

}  // namespace planning
