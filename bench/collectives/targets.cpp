// SPDX-License-Identifier: Apache-2.0
#include "targets.hpp"

#include <span>
#include <string_view>

namespace collectives_bench {
namespace {

constexpr std::uint64_t smallest_bytes = std::uint64_t{64} << 20U;

target ratio_of(std::string what, double limit, bool is_at_least,
                const std::vector<double>& numerator, const std::vector<double>& denominator) {
  return {.what = std::move(what),
          .limit = limit,
          .is_at_least = is_at_least,
          .by_median = median_ratio(numerator, denominator),
          .by_best = smallest(numerator) / smallest(denominator)};
}

std::string name_in(const comparison& compared, const series& one) {
  return std::string(facts_of(one.subject).name(compared.load.what));
}

target speed(const comparison& compared, const series& fast, const series& base, double limit) {
  return ratio_of("speed of " + name_in(compared, fast) + " / " + name_in(compared, base), limit,
                  true, base.seconds(), fast.seconds());
}

target time(const comparison& compared, const series& measured, const series& base, double limit) {
  return ratio_of("time of " + name_in(compared, measured) + " / " + name_in(compared, base), limit,
                  false, measured.seconds(), base.seconds());
}

target cpu(const comparison& compared, const series& measured, const series& base, double limit) {
  return ratio_of("CPU of " + name_in(compared, measured) + " / " + name_in(compared, base), limit,
                  false, measured.cpu_seconds(), base.cpu_seconds());
}

/// The fastest of those that were measured; null where none was.
const series* fastest(const comparison& compared, std::span<const contender_id> candidates) {
  const series* first = nullptr;
  for (const contender_id id : candidates) {
    const series* const next = compared.find(id);
    if (next == nullptr) continue;
    if (first == nullptr || median_ratio(next->seconds(), first->seconds()) < 1) first = next;
  }
  return first;
}

}  // namespace

std::vector<target> targets_of(const comparison& compared) {
  std::vector<target> targets;
  if (compared.load.what == operation::all_reduce || compared.load.bytes() < smallest_bytes) {
    return targets;
  }
  const bool reduces = compared.load.what == operation::reduce_scatter;
  const series* const gloo = fastest(compared, gloo_segmentations);
  const series* const ring = fastest(compared, gloo_ring_segmentations);
  const series* const gloo_own = compared.find(contender_id::gloo_own);
  const series* const shm = compared.find(contender_id::shm_shared);
  const series* const threads = compared.find(contender_id::threads);
  const series* const copy = compared.find(contender_id::copy);
  if (reduces && gloo != nullptr && gloo_own != nullptr) {
    targets.push_back(speed(compared, *gloo, *gloo_own, 1.7));
    targets.push_back(cpu(compared, *gloo, *gloo_own, 0.7));
  }
  if (reduces && compared.ranks == 2 && ring != nullptr && gloo_own != nullptr) {
    targets.push_back(speed(compared, *ring, *gloo_own, 2.0));
  }
  if (shm != nullptr && gloo != nullptr) targets.push_back(speed(compared, *shm, *gloo, 3.0));
  if (shm != nullptr && threads != nullptr) targets.push_back(time(compared, *shm, *threads, 1.3));
  if (reduces && compared.ranks == 2 && threads != nullptr && copy != nullptr) {
    targets.push_back(time(compared, *threads, *copy, 1.3));
  }
  return targets;
}

}  // namespace collectives_bench
