// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <algorithm>
#include <functional>

namespace collectives_bench {
namespace {

template <class Member>
std::vector<double> column(const std::vector<timing>& timings, Member member) {
  std::vector<double> values;
  for (const timing& one : timings) values.push_back(one.*member);
  return values;
}

/// Enough to make waking up the ranks small against what they do.
std::uint32_t iterations_for(const workload& load) {
  if (load.what == operation::all_reduce) return 200;
  constexpr std::uint64_t enough_bytes = std::uint64_t{16} << 20U;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(enough_bytes / load.bytes(), 1, 16));
}

}  // namespace

std::vector<double> series::seconds() const {
  return column(timings, &timing::seconds);
}
std::vector<double> series::cpu_seconds() const {
  return column(timings, &timing::cpu_seconds);
}

const series* comparison::find(contender_id subject) const {
  const auto found = std::find_if(measured.begin(), measured.end(),
                                  [&](const series& one) { return one.subject == subject; });
  return found == measured.end() ? nullptr : &*found;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double smallest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

double median_ratio(const std::vector<double>& numerator, const std::vector<double>& denominator) {
  std::vector<double> ratios(numerator.size());
  std::transform(numerator.begin(), numerator.end(), denominator.begin(), ratios.begin(),
                 std::divides<>());
  return median(ratios);
}

comparison measure(std::vector<team>& teams, const std::vector<contender_id>& contenders,
                   const workload& load, int repetitions) {
  comparison result{teams.front().size(), load, iterations_for(load), {}};
  const auto ask = [&](contender_id subject, command what) {
    const team_kind kind = facts_of(subject).team;
    const auto its = std::find_if(teams.begin(), teams.end(),
                                  [&](const team& one) { return one.kind() == kind; });
    return its->ask({what, subject, load, result.iterations});
  };
  for (const contender_id subject : contenders) {
    ask(subject, command::verify);
    result.measured.push_back({subject, {}});
  }
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    // Who follows whom changes, so that nobody always finds the caches of the same predecessor.
    const auto first = static_cast<std::size_t>(repetition) % contenders.size();
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      series& next = result.measured[(first + i) % contenders.size()];
      next.timings.push_back(ask(next.subject, command::measure));
    }
  }
  return result;
}

}  // namespace collectives_bench
