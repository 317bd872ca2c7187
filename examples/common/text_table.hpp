// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace example {

/// Rows of cells, printed in columns: the first `left` of them to the left, the others, numbers,
/// to the right.
class text_table {
 public:
  explicit text_table(std::size_t left = 1) : left_(left) {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  std::string text() const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (std::size_t i = 0; i < row.size(); ++i)
        widths[i] = std::max(widths[i], row[i].size());
    }
    std::string result;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string fill(widths[i] - row[i].size(), ' ');
        line += i == 0 ? "" : "  ";
        line += i < left_ ? row[i] + fill : fill + row[i];
      }
      line.erase(line.find_last_not_of(' ') + 1);
      result += line + "\n";
    }
    return result;
  }

 private:
  std::size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace example
