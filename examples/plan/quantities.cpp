// SPDX-License-Identifier: Apache-2.0
#include "quantities.hpp"

#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "program.hpp"

namespace planning {
namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

/// A decimal number as digits x 10^exponent.
struct decimal_number {
  std::uint64_t digits = 0;
  int exponent = 0;
};

/// Takes digits, a point and an exponent from the front of `text`; nothing where there are none.
std::optional<decimal_number> take_number(std::string_view& text) {
  decimal_number number;
  bool has_digits = false;
  bool after_point = false;
  while (!text.empty()) {
    const char c = text.front();
    if (c == '.' && !after_point) {
      after_point = true;
    } else if (c >= '0' && c <= '9') {
      const auto digit = static_cast<std::uint64_t>(c - '0');
      if (number.digits > (largest - digit) / 10)
        return std::nullopt;
      number.digits = number.digits * 10 + digit;
      number.exponent -= after_point ? 1 : 0;
      has_digits = true;
    } else {
      break;
    }
    text.remove_prefix(1);
  }
  if (!has_digits)
    return std::nullopt;
  if (!text.empty() && (text.front() == 'e' || text.front() == 'E')) {
    std::string_view rest = text.substr(1);
    if (!rest.empty() && rest.front() == '+')
      rest.remove_prefix(1);
    int exponent = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), exponent);
    if (error != std::errc{} || exponent < -1000 || exponent > 1000)
      return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    number.exponent += exponent;
  }
  return number;
}

std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  if (b != 0 && a > largest / b)
    return std::nullopt;
  return a * b;
}

/// The number times `unit`, rounded down; `exact` says whether nothing was lost.
/// Nothing where it leaves 64 bits.
std::optional<std::uint64_t> scale(decimal_number number, std::uint64_t unit, bool& exact) {
  exact = true;
  // Trailing zeros first, so that 80.000GB needs no more room than 80GB.
  while (number.exponent < 0 && number.digits % 10 == 0 && number.digits != 0) {
    number.digits /= 10;
    ++number.exponent;
  }
  std::optional<std::uint64_t> value = product(number.digits, unit);
  for (; value && *value != 0 && number.exponent > 0; --number.exponent) {
    value = product(*value, 10);
  }
  for (; value && *value != 0 && number.exponent < 0; ++number.exponent) {
    exact = exact && *value % 10 == 0;
    *value /= 10;
  }
  return value;
}

struct suffix {
  std::string_view text;
  std::uint64_t factor;
};

constexpr std::array count_suffixes{suffix{"", 1}, suffix{"K", 1'000}, suffix{"M", 1'000'000},
                                    suffix{"B", 1'000'000'000}, suffix{"T", 1'000'000'000'000}};
constexpr std::array byte_suffixes{
    suffix{"", 1},
    suffix{"B", 1},
    suffix{"KB", 1'000},
    suffix{"MB", 1'000'000},
    suffix{"GB", 1'000'000'000},
    suffix{"TB", 1'000'000'000'000},
    suffix{"KiB", std::uint64_t{1} << 10},
    suffix{"MiB", std::uint64_t{1} << 20},
    suffix{"GiB", std::uint64_t{1} << 30},
    suffix{"TiB", std::uint64_t{1} << 40},
};

template <class Suffixes>
std::optional<std::uint64_t> factor_of(std::string_view text, const Suffixes& suffixes) {
  for (const suffix& known : suffixes) {
    if (known.text == text)
      return known.factor;
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t parse_count(std::string_view text) {
  constexpr std::uint64_t limit = 1'000'000'000'000'000;
  std::string_view rest = text;
  const std::optional<decimal_number> number = take_number(rest);
  const std::optional<std::uint64_t> unit = factor_of(rest, count_suffixes);
  if (!number || !unit) {
    throw example::usage_failure("\"" + std::string(text) +
                                 "\" is not a number of parameters (7.5e9, 7.5B, 128B, 1T)");
  }
  bool exact = true;
  const std::optional<std::uint64_t> value = scale(*number, *unit, exact);
  if (!value || !exact || *value == 0 || *value > limit) {
    throw example::usage_failure("\"" + std::string(text) +
                                 "\" is not a whole number of parameters from 1 to 10^15");
  }
  return *value;
}

std::uint64_t parse_bytes(std::string_view text) {
  constexpr std::uint64_t limit = std::uint64_t{1} << 60;
  std::string_view rest = text;
  const std::optional<decimal_number> number = take_number(rest);
  const std::optional<std::uint64_t> unit = factor_of(rest, byte_suffixes);
  if (!number || !unit) {
    throw example::usage_failure("\"" + std::string(text) +
                                 "\" is not an amount of memory (80GB is 10^9, 80GiB is 2^30)");
  }
  bool exact = true;
  const std::optional<std::uint64_t> value = scale(*number, *unit, exact);
  if (!value || *value == 0 || *value >= limit) {
    throw example::usage_failure("\"" + std::string(text) +
                                 "\" is not between 1 byte and 2^60 bytes");
  }
  return *value;
}

std::string decimal(std::uint64_t numerator, std::uint64_t denominator, int decimals) {
  std::uint64_t power = 1;
  for (int i = 0; i < decimals; ++i)
    power *= 10;
  std::uint64_t whole = numerator / denominator;
  const std::uint64_t rest = numerator % denominator * power;
  std::uint64_t fraction = rest / denominator;
  const std::uint64_t left = rest % denominator;
  if (left >= denominator - left)
    ++fraction;
  if (fraction == power) {
    ++whole;
    fraction = 0;
  }
  std::string text = std::to_string(whole);
  if (fraction == 0)
    return text;
  std::string digits = std::to_string(fraction);
  digits.insert(0, static_cast<std::size_t>(decimals) - digits.size(), '0');
  digits.erase(digits.find_last_not_of('0') + 1);
  return text + "." + digits;
}

std::string readable_bytes(std::uint64_t bytes) {
  std::string_view name = "B";
  std::uint64_t unit = 1;
  for (const suffix& known : {suffix{"kB", 1'000}, suffix{"MB", 1'000'000},
                              suffix{"GB", 1'000'000'000}, suffix{"TB", 1'000'000'000'000}}) {
    if (bytes < known.factor)
      break;
    name = known.text;
    unit = known.factor;
  }
  return decimal(bytes, unit, 1) + " " + std::string(name);
}

}  // namespace planning
