// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <zero/communicator.hpp>
#include <zero/numeric/element_traits.hpp>
#include <zero/range.hpp>

#include "conformance/reference.hpp"
#include "support/communicator_contract.hpp"
#include "support/rank_runner.hpp"

// The parts of the communicator contract, for any communicator type. Each runs inside a rank and
// returns "" or the first thing that is wrong; all are collective.

namespace zero::test {

/// Elements of the full range, before it is made divisible.
inline std::vector<std::uint64_t> tested_counts(int size) {
  const auto n = static_cast<std::uint64_t>(size);
  return {0, 1, n - 1, n, n + 1, 1009};
}
inline std::uint64_t shard_of(std::uint64_t count, int size) {
  const auto n = static_cast<std::uint64_t>(size);
  return (count + n - 1) / n;
}
/// Large ranges take time, and a few numbers of ranks stand for all.
inline bool is_tested_with_large_ranges(int size) {
  return size <= 3 || size == 8;
}

/// Puts the place in front of what is wrong there.
inline std::string at(const std::string& place, const std::string& text) {
  return text.empty() ? text : place + ": " + text + "; ";
}

template <class Data, class T, class U, class C>
std::string try_reduce_scatter(C& comm, std::uint64_t shard_elements, float scale, bool in_place) {
  const auto n = static_cast<std::uint64_t>(comm.size());
  const std::uint64_t first = static_cast<std::uint64_t>(comm.rank()) * shard_elements;
  std::vector<T> in(n * shard_elements);
  std::vector<U> separate(in_place ? 0 : shard_elements, element_of<U>(3));
  fill<Data>(in, comm.rank());
  U* out = separate.data();
  if constexpr (std::is_same_v<T, U>) {
    if (in_place) out = in.data() + first;
  }
  auto work = comm.reduce_scatter(range<const T, partial>(in.data(), in.size()),
                                  range<U, shard>(out, shard_elements), {.scale = scale}, {});
  work.wait({});
  work.wait({});  // waiting twice is harmless
  std::string text = first_difference(out, shard_elements, [&](std::uint64_t i) {
    return expected_sum<Data, T, U>(comm.size(), first + i, scale);
  });
  for (std::uint64_t i = 0; text.empty() && i < in.size(); ++i) {
    const bool is_output = in_place && i >= first && i < first + shard_elements;
    if (!is_output && !same_bits(in[i], Data::template at<T>(comm.rank(), i))) {
      text = "the input was changed at " + std::to_string(i);
    }
  }
  return at(in_place ? "in place" : "into another buffer", text);
}

template <class T, class U, class C>
std::string reduce_scatter_part(C& comm, const std::vector<std::uint64_t>& counts) {
  for (const std::uint64_t count : counts) {
    const std::uint64_t elements = shard_of(count, comm.size());
    std::string text;
    for (const bool in_place : {false, true}) {
      if (in_place && !std::is_same_v<T, U>) continue;
      text += try_reduce_scatter<small_integers, T, U>(comm, elements, 1.0F, in_place);
      text += try_reduce_scatter<random_fractions, T, U>(comm, elements, 1.0F, in_place);
      text += try_reduce_scatter<random_fractions, T, U>(comm, elements, 0.3F, in_place);
    }
    if (!text.empty()) {
      return "reduce_scatter of " + std::string(element_traits<T>::name) + " into " +
             std::string(element_traits<U>::name) + ", shard of " + std::to_string(elements) +
             ", " + text;
    }
  }
  return {};
}

template <class T, class C>
std::string try_all_gather(C& comm, std::uint64_t shard_elements, bool in_place) {
  const auto n = static_cast<std::uint64_t>(comm.size());
  std::vector<T> out(n * shard_elements, element_of<T>(3));
  std::vector<T> own(shard_elements);
  fill<random_fractions>(own, comm.rank());
  const T* in = own.data();
  if (in_place) {
    T* place = out.data() + static_cast<std::uint64_t>(comm.rank()) * shard_elements;
    for (std::uint64_t i = 0; i < shard_elements; ++i) place[i] = own[i];
    in = place;
  }
  comm.all_gather(range<const T, shard>(in, shard_elements), range<T, full>(out.data(), out.size()),
                  {})
      .wait({});
  return at(in_place ? "all_gather in place" : "all_gather",
            first_difference(out.data(), out.size(), [&](std::uint64_t i) {
              return random_fractions::at<T>(static_cast<int>(i / shard_elements),
                                             i % shard_elements);
            }));
}

template <class T, class C>
std::string try_broadcast(C& comm, std::uint64_t elements) {
  for (int root = 0; root < comm.size(); ++root) {
    std::vector<T> values(elements);
    fill<random_fractions>(values, comm.rank());
    comm.broadcast(range<T, full>(values.data(), elements), root, {}).wait({});
    const std::string text = first_difference(
        values.data(), elements, [&](std::uint64_t i) { return random_fractions::at<T>(root, i); });
    if (!text.empty()) return "broadcast from " + std::to_string(root) + ": " + text;
  }
  return {};
}

template <class T, class C>
std::string movement_part(C& comm, const std::vector<std::uint64_t>& counts) {
  for (const std::uint64_t count : counts) {
    const std::uint64_t elements = shard_of(count, comm.size());
    const std::string text = try_all_gather<T>(comm, elements, false) +
                             try_all_gather<T>(comm, elements, true) +
                             try_broadcast<T>(comm, count);
    if (!text.empty()) {
      return std::string(element_traits<T>::name) + ", count " + std::to_string(count) + ", " +
             text;
    }
  }
  return {};
}

template <class C>
std::string all_reduce_part(C& comm) {
  // More than fits into one piece of a backend's scratch, and sizes around it.
  for (const std::uint64_t count : {0U, 1U, 7U, 511U, 512U, 513U, 2500U}) {
    std::vector<double> values(count);
    fill<random_fractions>(values, comm.rank());
    comm.all_reduce(range<double, full>(values.data(), count), {}).wait({});
    const std::string text = first_difference(values.data(), count, [&](std::uint64_t i) {
      return expected_sum<random_fractions, double, double>(comm.size(), i, 1.0F);
    });
    if (!text.empty()) return "all_reduce of " + std::to_string(count) + ": " + text;
  }
  return {};
}

/// Many collectives one after the other, with buffers that are refilled as soon as a wait is over.
template <class C>
std::string back_to_back_part(C& comm, int iterations) {
  constexpr std::uint64_t elements = 5;
  const auto n = static_cast<std::uint64_t>(comm.size());
  const std::uint64_t own = static_cast<std::uint64_t>(comm.rank()) * elements;
  std::vector<float> flat(n * elements);
  std::array<double, 2> scalars{};
  for (int i = 0; i < iterations; ++i) {
    const auto first = static_cast<std::uint64_t>(i) * flat.size();
    const auto sum_at = [&](std::uint64_t k) {
      return expected_sum<small_integers, float, float>(comm.size(), first + k, 1.0F);
    };
    fill<small_integers>(flat, comm.rank(), first);
    comm.reduce_scatter(range<const float, partial>(flat.data(), flat.size()),
                        range<float, shard>(flat.data() + own, elements), {}, {})
        .wait({});
    comm.all_gather(range<const float, shard>(flat.data() + own, elements),
                    range<float, full>(flat.data(), flat.size()), {})
        .wait({});
    scalars = {1.0, static_cast<double>(comm.rank() + i)};
    comm.all_reduce(range<double, full>(scalars.data(), 2), {}).wait({});
    const double ranks = comm.size();
    if (!first_difference(flat.data(), flat.size(), sum_at).empty() || scalars[0] != ranks ||
        scalars[1] != ranks * i + ranks * (ranks - 1) / 2) {
      return "back to back, iteration " + std::to_string(i) + " is wrong";
    }
  }
  return {};
}

/// Several collectives in flight at once, waited for in another order, some handles dropped.
template <class C>
std::string in_flight_part(C& comm) {
  constexpr std::size_t flights = 8;
  const auto n = static_cast<std::uint64_t>(comm.size());
  std::vector<std::vector<float>> buffers(flights, std::vector<float>(n * 3));
  std::vector<std::array<float, 3>> results(flights);
  std::vector<typename C::work> works(flights);
  for (std::size_t i = 0; i < flights; ++i) {
    fill<small_integers>(buffers[i], comm.rank(), i * 100);
    works[i] =
        comm.reduce_scatter(range<const float, partial>(buffers[i].data(), buffers[i].size()),
                            range<float, shard>(results[i].data(), 3), {}, {});
  }
  for (std::size_t i = flights; i-- > 0;) {
    if (i % 3 == 1) {
      works[i] = typename C::work();  // dropped: waits as well
    } else {
      works[i].wait({});
    }
  }
  std::string text;
  const std::uint64_t own = static_cast<std::uint64_t>(comm.rank()) * 3;
  for (std::size_t i = 0; i < flights; ++i) {
    text += first_difference(results[i].data(), 3, [&](std::uint64_t k) {
      return expected_sum<small_integers, float, float>(comm.size(), i * 100 + own + k, 1.0F);
    });
  }
  return at("in flight", text);
}

template <class C>
std::string split_part(C& comm) {
  // Colors 7 and 8, in rank order; then once more inside the part.
  auto part = comm.split(7 + comm.rank() % 2);
  auto solo = part.split(part.rank());
  const int members = (comm.size() + 1 - comm.rank() % 2) / 2;
  std::array<double, 2> values{1.0, static_cast<double>(comm.rank())};
  part.all_reduce(range<double, full>(values.data(), 2), {}).wait({});
  double alone = 5;
  solo.all_reduce(range<double, full>(&alone, 1), {}).wait({});
  double expected = 0;
  for (int rank = comm.rank() % 2; rank < comm.size(); rank += 2) expected += rank;
  const bool is_right = part.size() == members && part.rank() == comm.rank() / 2 &&
                        values[0] == members && values[1] == expected && solo.size() == 1 &&
                        solo.rank() == 0 && alone == 5;
  return is_right ? std::string() : std::string("split: wrong part");
}

template <class C>
std::string claims_part(C& comm) {
  const bool first = comm.claim();
  const bool second = comm.claim();
  comm.unclaim();
  const bool third = comm.claim();
  comm.unclaim();
  return first && !second && third ? std::string() : std::string("claims are wrong");
}

/// Row 21: a mean over ranks divides by the ranks, whatever the number of elements.
template <class C>
std::string mean_part(C& comm) {
  const auto n = static_cast<std::uint64_t>(comm.size());
  std::vector<float> in(n * 5, static_cast<float>(2 * (comm.rank() + 1)));
  std::array<float, 5> out{};
  const float scale = 1.0F / static_cast<float>(comm.size());
  comm.reduce_scatter(range<const float, partial>(in.data(), in.size()),
                      range<float, shard>(out.data(), 5), {.scale = scale}, {})
      .wait({});
  // 2 (1 + ... + N) / N
  return at("fault_21 mean", first_difference(out.data(), 5, [&](std::uint64_t) {
              return static_cast<float>(comm.size() + 1);
            }));
}

/// Calls that are wrong in themselves, from 0 to wrong_call_count - 1.
constexpr int wrong_call_count = 7;

template <class C>
void make_wrong_call(C& comm, int which, float* data) {
  const auto n = static_cast<std::uint64_t>(comm.size());
  float* const crooked = data + 4 * comm.rank() + 1;
  const auto scatter = [&](std::uint64_t in, float* out, std::uint64_t count) {
    comm.reduce_scatter(range<const float, partial>(data, in), range<float, shard>(out, count), {},
                        {})
        .wait({});
  };
  const auto gather = [&](const float* in, std::uint64_t count, float* out, std::uint64_t all) {
    comm.all_gather(range<const float, shard>(in, count), range<float, full>(out, all), {})
        .wait({});
  };
  const auto send = [&](int root) {
    comm.broadcast(range<float, full>(data, 4), root, {}).wait({});
  };
  switch (which) {
    case 0:
      return scatter(4 * n + 1, data + 5 * n, 4);
    case 1:
      return gather(data, 3, data + 5, 3 * n + 1);
    case 2:
      return scatter(4 * n, crooked, 4);
    case 3:
      return gather(crooked, 4, data, 4 * n);
    case 4:
      return gather(nullptr, 4, data, 4 * n);
    case 5:
      return send(comm.size());
    default:
      return send(-1);
  }
}

/// It throws usage_error on every rank, before peers are involved.
template <class C>
std::string misuse_part(C& comm, int which) {
  constexpr std::string_view parts[wrong_call_count] = {
      "size x shard", "size x shard", "overlaps", "overlaps", "null pointer", "root", "root"};
  std::vector<float> buffer(64 * static_cast<std::size_t>(comm.size()));
  const rank_error error = error_of([&] { make_wrong_call(comm, which, buffer.data()); });
  const std::string_view part = parts[which];
  if (error.kind == outcome::usage && error.says(part)) return {};
  return "misuse " + std::to_string(which) + ": a usage_error that says \"" + std::string(part) +
         "\" was expected, not \"" + error.text + "\"";
}

/// The whole contract; the first part that is broken.
template <class C>
std::string try_contract(C& comm, const contract_options& options) {
  const auto counts = tested_counts(comm.size());
  const std::vector<std::uint64_t> large = is_tested_with_large_ranges(comm.size())
                                               ? std::vector{options.large_elements}
                                               : std::vector<std::uint64_t>{};
  std::string text;
  const auto is_kept = [&](std::string part) {
    text = std::move(part);
    return text.empty();
  };
  for (int which = 0; options.survives_misuse && which < wrong_call_count; ++which) {
    if (!is_kept(misuse_part(comm, which))) return text;
  }
  is_kept(claims_part(comm)) && is_kept(mean_part(comm)) &&
      is_kept(reduce_scatter_part<float, float>(comm, counts)) &&
      is_kept(reduce_scatter_part<double, double>(comm, counts)) &&
      is_kept(reduce_scatter_part<bfloat16, bfloat16>(comm, counts)) &&
      is_kept(reduce_scatter_part<float16, float16>(comm, counts)) &&
      is_kept(reduce_scatter_part<bfloat16, float>(comm, counts)) &&
      is_kept(reduce_scatter_part<float16, float>(comm, counts)) &&
      is_kept(reduce_scatter_part<float, float>(comm, large)) &&
      is_kept(reduce_scatter_part<bfloat16, bfloat16>(comm, large)) &&
      is_kept(movement_part<float>(comm, counts)) && is_kept(movement_part<double>(comm, counts)) &&
      is_kept(movement_part<bfloat16>(comm, counts)) &&
      is_kept(movement_part<float16>(comm, counts)) &&
      is_kept(movement_part<std::uint16_t>(comm, counts)) &&
      is_kept(movement_part<std::uint64_t>(comm, counts)) &&
      is_kept(movement_part<float>(comm, large)) &&
      is_kept(movement_part<std::uint16_t>(comm, large)) && is_kept(all_reduce_part(comm)) &&
      is_kept(back_to_back_part(comm, options.back_to_back)) && is_kept(in_flight_part(comm)) &&
      (!options.splits || is_kept(split_part(comm))) && is_kept(claims_part(comm));
  return text;
}

/// Throws what is broken, so that the run ends for the peers and this rank is its cause.
inline std::string require_empty(const std::string& text) {
  if (!text.empty()) throw std::runtime_error(text);
  return {};
}
template <class C>
std::string require_contract(C& comm, const contract_options& options) {
  return require_empty(try_contract(comm, options));
}

/// One line about the rank that failed first, "" when none did. `error_of_rank` gives its error.
template <class ErrorOfRank>
std::string violation_of(int size, int failed_rank, ErrorOfRank error_of_rank) {
  if (failed_rank < 0) return {};
  return "N = " + std::to_string(size) + ", rank " + std::to_string(failed_rank) + ": " +
         describe(error_of_rank(failed_rank)).text + "\n";
}

}  // namespace zero::test
