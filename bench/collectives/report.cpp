// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cstdio>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "targets.hpp"

namespace collectives_bench {
namespace {

double gigabytes_per_second(const comparison& compared, double seconds) {
  return static_cast<double>(compared.load.bytes()) / seconds * 1e-9;
}

double cpu_milliseconds_per_mebibyte(const comparison& compared, const series& one) {
  return median(one.cpu_seconds()) * 1e3 / (static_cast<double>(compared.load.bytes()) / mebibyte);
}

/// A ratio to a contender that may not have been measured.
std::string ratio_text(const series* numerator, const series* denominator,
                       std::vector<double> (series::*column)() const) {
  if (numerator == nullptr || denominator == nullptr) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f",
                median_ratio((numerator->*column)(), (denominator->*column)()));
  return text;
}

void print_latencies(const comparison& compared) {
  std::printf("%-34s %10s %10s %12s\n", "", "us median", "best", "CPU us");
  for (const series& one : compared.measured) {
    std::printf("%-34s %10.1f %10.1f %12.1f\n",
                std::string(facts_of(one.subject).name(compared.load.what)).c_str(),
                1e6 * median(one.seconds()), 1e6 * smallest(one.seconds()),
                1e6 * median(one.cpu_seconds()));
  }
}

nlohmann::json json_of(const comparison& compared) {
  nlohmann::json contenders = nlohmann::json::array();
  for (const series& one : compared.measured) {
    contenders.push_back(
        {{"name", facts_of(one.subject).name(compared.load.what)},
         {"seconds", one.seconds()},
         {"cpu_seconds", one.cpu_seconds()},
         {"median_seconds", median(one.seconds())},
         {"best_seconds", smallest(one.seconds())},
         {"median_gigabytes_per_second", gigabytes_per_second(compared, median(one.seconds()))},
         {"median_cpu_milliseconds_per_mebibyte", cpu_milliseconds_per_mebibyte(compared, one)}});
  }
  const bool sums_doubles = compared.load.what == operation::all_reduce;
  return {{"operation", name_of(compared.load.what)},
          {"element", sums_doubles ? "fp64" : name_of(compared.load.type)},
          {"elements", compared.load.elements},
          {"bytes", compared.load.bytes()},
          {"ranks", compared.ranks},
          {"iterations_per_repetition", compared.iterations},
          {"contenders", contenders}};
}

}  // namespace

std::string title_of(const comparison& compared) {
  std::string title(name_of(compared.load.what));
  title += " of ";
  if (compared.load.what == operation::all_reduce) {
    title += std::to_string(compared.load.elements) + " doubles";
  } else {
    char size[32];
    std::snprintf(size, sizeof(size), "%.4g MiB ",
                  static_cast<double>(compared.load.bytes()) / mebibyte);
    title += size + std::string(name_of(compared.load.type));
  }
  return title + ", " + std::to_string(compared.ranks) + " ranks";
}

void print_table(const comparison& compared) {
  std::printf("\n%s (%zu repetitions of %u)\n", title_of(compared).c_str(),
              compared.measured.front().timings.size(), compared.iterations);
  if (compared.load.what == operation::all_reduce) return print_latencies(compared);

  const series* const gloo_own = compared.find(contender_id::gloo_own);
  const series* const threads = compared.find(contender_id::threads);
  std::printf("speed and CPU: %s = 1; time: threads = 1\n",
              std::string(facts_of(contender_id::gloo_own).name(compared.load.what)).c_str());
  std::printf("%-34s %10s %10s %8s %11s %8s %8s %8s\n", "", "ms median", "best", "GB/s",
              "CPU ms/MiB", "speed", "CPU", "time");
  for (const series& one : compared.measured) {
    const double seconds = median(one.seconds());
    std::printf("%-34s %10.2f %10.2f %8.2f %11.3f %8s %8s %8s\n",
                std::string(facts_of(one.subject).name(compared.load.what)).c_str(), 1e3 * seconds,
                1e3 * smallest(one.seconds()), gigabytes_per_second(compared, seconds),
                cpu_milliseconds_per_mebibyte(compared, one),
                ratio_text(gloo_own, &one, &series::seconds).c_str(),
                ratio_text(&one, gloo_own, &series::cpu_seconds).c_str(),
                ratio_text(&one, threads, &series::seconds).c_str());
  }
  std::fflush(stdout);
}

void print_targets(const std::vector<comparison>& all) {
  bool has_any = false;
  for (const comparison& compared : all) {
    for (const target& one : targets_of(compared)) {
      if (!has_any) {
        std::printf("\nTargets, by the median ratio (the ratio of the best repetitions)\n");
      }
      has_any = true;
      std::printf("%-6s %-44s %-66s %5.2f (%.2f), %s %.1f\n", one.is_met() ? "met" : "MISSED",
                  title_of(compared).c_str(), one.what.c_str(), one.by_median, one.by_best,
                  one.is_at_least ? "at least" : "at most", one.limit);
    }
  }
  if (!has_any) std::printf("\nTargets are for sizes from 64 MiB; none was measured.\n");
}

void write_json(const std::string& file, const std::vector<comparison>& all) {
  nlohmann::json comparisons = nlohmann::json::array();
  nlohmann::json targets = nlohmann::json::array();
  for (const comparison& compared : all) {
    comparisons.push_back(json_of(compared));
    for (const target& one : targets_of(compared)) {
      targets.push_back({{"workload", title_of(compared)},
                         {"ratio", one.what},
                         {"limit", one.limit},
                         {"is_at_least", one.is_at_least},
                         {"by_median", one.by_median},
                         {"by_best", one.by_best},
                         {"is_met", one.is_met()}});
    }
  }
  const nlohmann::json document{{"comparisons", comparisons}, {"targets", targets}};
  std::ofstream out(file);
  out << document.dump(1) << '\n';
  if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

}  // namespace collectives_bench
