// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <zero/layout.hpp>

namespace zero::test {

/// What a random layout contains, so that a test can say what it covered.
struct layout_features {
  bool frozen = false;
  bool tied = false;
  bool repeated = false;
  bool zero_size = false;
};

struct random_layout {
  model_layout layout;
  layout_features features;
};

/// A small layout: up to 6 units of up to 5 tensors, some frozen, tied, empty or prime, some units
/// used several times; alignments of 2 to 256 bytes.
class layout_generator {
 public:
  explicit layout_generator(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  random_layout draw() {
    random_layout result{model_layout({.alignment_bytes = std::uint64_t{2} << below(8)}), {}};
    std::vector<tensor_id> owners;
    const std::uint64_t units = 1 + below(6);
    for (std::uint64_t u = 0; u < units; ++u) {
      const unit_id unit = result.layout.add_unit("unit" + std::to_string(u));
      const std::uint64_t tensors = below(6);
      for (std::uint64_t t = 0; t < tensors; ++t)
        add_tensor(result, unit, owners);
      while (one_in(4)) {
        result.layout.use({static_cast<std::uint32_t>(below(u + 1))});
        result.features.repeated = true;
      }
    }
    return result;
  }

 private:
  void add_tensor(random_layout& result, unit_id unit, std::vector<tensor_id>& owners) {
    const std::string name = "tensor" + std::to_string(result.layout.tensor_count());
    if (!owners.empty() && one_in(6)) {
      const tensor_info owner = result.layout.info(owners[below(owners.size())]);
      result.layout.add_tensor(unit, name, owner.shape, owner.group,
                               {.trainable = owner.trainable, .tied_to = owner.id});
      result.features.tied = true;
      return;
    }
    constexpr std::uint64_t sizes[] = {0, 1, 2, 3, 7, 8, 13, 24, 31, 32, 64, 101, 256, 509};
    const std::uint64_t rows = sizes[below(std::size(sizes))];
    const std::uint64_t columns = one_in(3) ? 1 + below(5) : 1;
    const bool is_frozen = one_in(5);
    result.features.frozen = result.features.frozen || is_frozen;
    result.features.zero_size = result.features.zero_size || rows == 0;
    owners.push_back(result.layout.add_tensor(unit, name, {rows, columns},
                                              one_in(2) ? decay : no_decay,
                                              {.trainable = !is_frozen, .tied_to = {}}));
  }

  std::mt19937_64 random_;
};

}  // namespace zero::test
