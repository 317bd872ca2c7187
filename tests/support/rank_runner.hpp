// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include <zero/backends/threads.hpp>
#include <zero/error.hpp>

// Rank threads never use Catch's macros: they return or throw, and the main thread looks at what
// they returned or threw with the functions below.

namespace zero::test {

/// Short enough that a test of a deadline is quick, long enough for a loaded machine.
constexpr threads_options short_timeout{.timeout = std::chrono::milliseconds(200)};
/// For tests in which a deadline must not pass: a failure to wake a rank shows as a timeout_error.
constexpr threads_options long_timeout{.timeout = std::chrono::seconds(30)};

/// Whether the long form of a test was asked for.
inline bool full_counts() {
  const char* value = std::getenv("ZERO_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

enum class outcome { returned, usage, timeout, mismatch, aborted, communicator, error, other };

/// A rank's exception in a form that can be compared.
struct rank_error {
  outcome kind = outcome::returned;
  std::string text;
  communicator_failure where;

  bool says(std::string_view part) const { return text.find(part) != std::string::npos; }
};

inline rank_error describe(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const timeout_error& e) {
    return {outcome::timeout, e.what(), e.failure()};
  } catch (const mismatch_error& e) {
    return {outcome::mismatch, e.what(), e.failure()};
  } catch (const aborted_error& e) {
    return {outcome::aborted, e.what(), e.failure()};
  } catch (const communicator_error& e) {
    return {outcome::communicator, e.what(), e.failure()};
  } catch (const zero::error& e) {
    return {outcome::error, e.what(), {}};
  } catch (const usage_error& e) {
    return {outcome::usage, e.what(), {}};
  } catch (const std::exception& e) {
    return {outcome::other, e.what(), {}};
  } catch (...) {
    return {outcome::other, "not a std::exception", {}};
  }
}

/// What `call()` throws, in a form that can be compared; for use inside a rank.
template <class Call>
rank_error error_of(Call call) {
  try {
    call();
    return {};
  } catch (...) {
    return describe(std::current_exception());
  }
}

/// Runs the ranks and tells how each of them ended.
template <class Function>
std::vector<rank_error> outcomes(int size, threads_options options, Function function) {
  const auto result = try_run_threads(size, options, function);
  std::vector<rank_error> errors;
  for (int rank = 0; rank < size; ++rank) errors.push_back(describe(result.error(rank)));
  return errors;
}

}  // namespace zero::test
