// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device
// timeout: 120
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <string>

#include "conformance/contract_parts.hpp"
#include "support/simulated_device/nccl_backend.hpp"

using namespace zero;
using namespace zero::test;

// NCCL promises no order of sums and no unrounded ones, and multiplies before it sums, so its
// values are compared where they are exact whatever the order: with small integers, and scales of
// 2^-n.

namespace {

template <class T, class C>
std::string sums_part(C& comm) {
  for (const std::uint64_t count : tested_counts(comm.size())) {
    const std::uint64_t elements = shard_of(count, comm.size());
    for (const bool in_place : {false, true}) {
      for (const float scale : {1.0F, 0.5F, 0.125F}) {
        const std::string text =
            try_reduce_scatter<small_integers, T, T>(comm, elements, scale, in_place);
        if (!text.empty()) {
          return std::string(element_traits<T>::name) + ", shard of " + std::to_string(elements) +
                 ", scale " + std::to_string(scale) + ", " + text;
        }
      }
    }
  }
  return {};
}

template <class C>
std::string all_reduce_of_integers_part(C& comm) {
  for (const std::uint64_t count : {0U, 1U, 513U}) {
    std::vector<double> values(count);
    fill<small_integers>(values, comm.rank());
    comm.all_reduce(range<double, full>(values.data(), count), {}).wait({});
    const std::string text = first_difference(values.data(), count, [&](std::uint64_t i) {
      return expected_sum<small_integers, double, double>(comm.size(), i, 1.0F);
    });
    if (!text.empty()) return "all_reduce: " + text;
  }
  return {};
}

template <class C>
std::string nccl_contract(C& comm) {
  const auto counts = tested_counts(comm.size());
  std::string text;
  const auto is_kept = [&](std::string part) {
    text = std::move(part);
    return text.empty();
  };
  for (int which = 0; which < wrong_call_count; ++which) {
    if (!is_kept(misuse_part(comm, which))) return text;
  }
  is_kept(claims_part(comm)) && is_kept(sums_part<float>(comm)) &&
      is_kept(sums_part<double>(comm)) && is_kept(sums_part<bfloat16>(comm)) &&
      is_kept(sums_part<float16>(comm)) && is_kept(movement_part<float>(comm, counts)) &&
      is_kept(movement_part<bfloat16>(comm, counts)) &&
      is_kept(movement_part<std::uint16_t>(comm, counts)) &&
      is_kept(movement_part<std::uint64_t>(comm, counts)) &&
      is_kept(all_reduce_of_integers_part(comm)) && is_kept(back_to_back_part(comm, 50)) &&
      is_kept(in_flight_part(comm)) && is_kept(split_part(comm));
  return text;
}

std::string violations(bool sums_as_tree, bool checked_order) {
  std::string texts;
  for (const int size : nccl_backend::sizes()) {
    const std::uint64_t seed = static_cast<std::uint64_t>(size) + 100 + Catch::rngSeed();
    const simulated_device device({.seed = seed,
                                   .devices = size,
                                   .patience = std::chrono::seconds(20),
                                   .nccl_sums_as_tree = sums_as_tree});
    const running_device running;
    nccl_options settings;
    settings.timeout = std::chrono::seconds(60);
    settings.checked_order = checked_order;
    const auto result = nccl_backend::run_on(
        size, settings, [](auto& comm) { return require_empty(nccl_contract(comm)); });
    texts += violation_of(size, result.failed_rank(), [&](int rank) { return result.error(rank); });
    for (const std::string& finding : device.findings()) texts += finding + "\n";
    if (!texts.empty()) return texts + "seed " + std::to_string(seed);
  }
  return texts;
}

}  // namespace

TEST_CASE("ranks over NCCL on simulated devices keep the communicator contract") {
  CHECK(violations(true, false) == "");
}

TEST_CASE("NCCL may sum in any order, and ranks may compare their calls first") {
  CHECK(violations(false, true) == "");
}
