// SPDX-License-Identifier: Apache-2.0
#include "support/simulated_device/device_code.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace {

struct known_code {
  zero::test::detail::device_code code;
  std::atomic<std::uint64_t> runs{0};
};

/// By the kernel's demangled name. Nothing is ever removed, so addresses stay good.
struct table {
  std::mutex mutex;
  std::map<std::string, known_code> all;
};

table& known() {
  static table codes;
  return codes;
}

}  // namespace

void zero::test::detail::add_device_code(const std::string& kernel, device_code code) {
  const std::lock_guard lock(known().mutex);
  known_code& entry = known().all[kernel];
  entry.code.argument_bytes = code.argument_bytes;
  entry.code.body = [&runs = entry.runs, body = std::move(code.body)](const void* argument,
                                                                      std::uint64_t threads) {
    ++runs;
    body(argument, threads);
  };
}

const zero::test::detail::device_code* zero::test::detail::find_device_code(
    const std::string& kernel) {
  const std::lock_guard lock(known().mutex);
  const auto found = known().all.find(kernel);
  return found == known().all.end() ? nullptr : &found->second.code;
}

std::uint64_t zero::test::device_code_runs(const std::string& kernel) {
  const std::lock_guard lock(known().mutex);
  const auto found = known().all.find(kernel);
  return found == known().all.end() ? 0 : found->second.runs.load();
}
