// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/communicator.hpp>
#include <zero/numeric/element_traits.hpp>
#include <zero/range.hpp>

#include "conformance/reference.hpp"
#include "support/rank_runner.hpp"

// What every communicator has to do, said once. A backend's file names its fixture and calls these
// functions from its test cases. Ranks return "" or a text; Catch's macros stay on the main thread.

namespace zero::test {

template <class Backend, class Function>
void check_ranks(int size, const std::string& what, Function function) {
  const auto texts = Backend::run(size, long_timeout, function).values();
  for (int rank = 0; rank < size; ++rank) {
    INFO(what << ", N = " << size << ", rank " << rank);
    CHECK(texts[static_cast<std::size_t>(rank)] == "");
  }
}

/// Elements of the full range, before it is made divisible.
inline std::vector<std::uint64_t> tested_counts(int size) {
  const auto n = static_cast<std::uint64_t>(size);
  return {0, 1, n - 1, n, n + 1, 1009};
}
inline std::uint64_t large_count() {
#ifdef ZERO_TEST_REDUCED
  constexpr std::uint64_t usual = std::uint64_t{1} << 16U;
#else
  constexpr std::uint64_t usual = std::uint64_t{1} << 20U;
#endif
  return full_counts() ? std::uint64_t{1} << 24U : usual;
}
inline std::uint64_t shard_of(std::uint64_t count, int size) {
  const auto n = static_cast<std::uint64_t>(size);
  return (count + n - 1) / n;
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
  return text;
}

template <class Backend, class T, class U = T>
void check_reduce_scatter(const std::vector<int>& sizes, bool large) {
  for (const int size : sizes) {
    auto counts = large ? std::vector<std::uint64_t>{large_count()} : tested_counts(size);
    for (const std::uint64_t count : counts) {
      const std::uint64_t elements = shard_of(count, size);
      const std::string what = std::string(element_traits<T>::name) + " into " +
                               std::string(element_traits<U>::name) + ", shard of " +
                               std::to_string(elements);
      check_ranks<Backend>(size, what, [&](auto& comm) {
        std::string text;
        for (const bool in_place : {false, true}) {
          if (in_place && !std::is_same_v<T, U>) continue;
          text += try_reduce_scatter<small_integers, T, U>(comm, elements, 1.0F, in_place);
          text += try_reduce_scatter<random_fractions, T, U>(comm, elements, 1.0F, in_place);
          text += try_reduce_scatter<random_fractions, T, U>(comm, elements, 0.3F, in_place);
        }
        return text;
      });
    }
  }
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
  return first_difference(out.data(), out.size(), [&](std::uint64_t i) {
    return random_fractions::at<T>(static_cast<int>(i / shard_elements), i % shard_elements);
  });
}

template <class T, class C>
std::string try_broadcast(C& comm, std::uint64_t elements) {
  std::string text;
  for (int root = 0; root < comm.size(); ++root) {
    std::vector<T> values(elements);
    fill<random_fractions>(values, comm.rank());
    comm.broadcast(range<T, full>(values.data(), elements), root, {}).wait({});
    text += first_difference(values.data(), elements, [&](std::uint64_t i) {
      return random_fractions::at<T>(root, i);
    });
  }
  return text;
}

template <class Backend, class T>
void check_movement(const std::vector<int>& sizes, bool large) {
  for (const int size : sizes) {
    auto counts = large ? std::vector<std::uint64_t>{large_count()} : tested_counts(size);
    for (const std::uint64_t count : counts) {
      const std::string what =
          std::string(element_traits<T>::name) + ", count " + std::to_string(count);
      check_ranks<Backend>(size, what, [&](auto& comm) {
        const std::uint64_t elements = shard_of(count, size);
        return try_all_gather<T>(comm, elements, false) + try_all_gather<T>(comm, elements, true) +
               try_broadcast<T>(comm, count);
      });
    }
  }
}

template <class Backend>
void check_all_reduce() {
  for (const int size : Backend::sizes()) {
    // More than fits into one piece of a backend's scratch, and sizes around it.
    for (const std::uint64_t count : {0U, 1U, 7U, 511U, 512U, 513U, 2500U}) {
      check_ranks<Backend>(size, "count " + std::to_string(count), [&](auto& comm) {
        std::vector<double> values(count);
        fill<random_fractions>(values, comm.rank());
        comm.all_reduce(range<double, full>(values.data(), count), {}).wait({});
        return first_difference(values.data(), count, [&](std::uint64_t i) {
          return expected_sum<random_fractions, double, double>(comm.size(), i, 1.0F);
        });
      });
    }
  }
}

/// Many collectives one after the other, with buffers that are refilled as soon as a wait is over.
template <class Backend>
void check_back_to_back(int iterations) {
  for (const int size : Backend::sizes()) {
    if (size > 5) continue;
    check_ranks<Backend>(size, "back to back", [&](auto& comm) {
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
          return "iteration " + std::to_string(i) + " is wrong";
        }
      }
      return std::string();
    });
  }
}

/// Several collectives in flight at once, waited for in another order, some handles dropped.
template <class Backend>
void check_in_flight() {
  for (const int size : Backend::sizes()) {
    check_ranks<Backend>(size, "in flight", [&](auto& comm) {
      using work = typename std::remove_reference_t<decltype(comm)>::work;
      constexpr std::size_t flights = 8;
      const auto n = static_cast<std::uint64_t>(comm.size());
      std::vector<std::vector<float>> buffers(flights, std::vector<float>(n * 3));
      std::vector<std::array<float, 3>> results(flights);
      std::vector<work> works(flights);
      for (std::size_t i = 0; i < flights; ++i) {
        fill<small_integers>(buffers[i], comm.rank(), i * 100);
        works[i] = comm.reduce_scatter(
            range<const float, partial>(buffers[i].data(), buffers[i].size()),
            range<float, shard>(results[i].data(), 3), {}, {});
      }
      for (std::size_t i = flights; i-- > 0;) {
        if (i % 3 == 1) {
          works[i] = work();  // dropped: waits as well
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
      return text;
    });
  }
}

template <class Backend>
void check_split() {
  for (const int size : Backend::sizes()) {
    check_ranks<Backend>(size, "split", [&](auto& comm) {
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
      const bool right = part.size() == members && part.rank() == comm.rank() / 2 &&
                         values[0] == members && values[1] == expected && solo.size() == 1 &&
                         solo.rank() == 0 && alone == 5;
      return right ? std::string() : std::string("wrong part");
    });
  }
}

template <class Backend>
void check_claims() {
  for (const int size : Backend::sizes()) {
    check_ranks<Backend>(size, "claims", [](auto& comm) {
      const bool first = comm.claim();
      const bool second = comm.claim();
      comm.unclaim();
      const bool third = comm.claim();
      return first && !second && third ? std::string() : std::string("claims are wrong");
    });
  }
}

/// Row 21: a mean over ranks divides by the ranks, whatever the number of elements.
template <class Backend>
void check_mean() {
  for (const int size : Backend::sizes()) {
    check_ranks<Backend>(size, "mean", [](auto& comm) {
      const auto n = static_cast<std::uint64_t>(comm.size());
      std::vector<float> in(n * 5, static_cast<float>(2 * (comm.rank() + 1)));
      std::array<float, 5> out{};
      const float scale = 1.0F / static_cast<float>(comm.size());
      comm.reduce_scatter(range<const float, partial>(in.data(), in.size()),
                          range<float, shard>(out.data(), 5), {.scale = scale}, {})
          .wait({});
      // 2 (1 + ... + N) / N
      return first_difference(out.data(), 5, [&](std::uint64_t) {
        return static_cast<float>(comm.size() + 1);
      });
    });
  }
}

/// What a wrong call throws on every rank; each in a world of its own.
template <class Backend>
void check_misuse() {
  for (const int size : Backend::sizes()) {
    const auto refuses = [&](const std::string& what, const std::string& part, auto call) {
      const auto result = Backend::run(size, long_timeout, [&](auto& comm) {
        std::vector<float> buffer(64 * static_cast<std::size_t>(comm.size()));
        return error_of([&] { call(comm, buffer.data()); });
      });
      for (int rank = 0; rank < size; ++rank) REQUIRE(!result.error(rank));
      auto copy = result;
      for (const rank_error& error : std::move(copy).values()) {
        INFO(what << ", N = " << size << ": " << error.text);
        CHECK(error.kind == outcome::usage);
        CHECK(error.says(part));
      }
    };
    const auto n = static_cast<std::uint64_t>(size);
    refuses("count", "size x shard", [&](auto& comm, float* data) {
      comm.reduce_scatter(range<const float, partial>(data, 4 * n + 1),
                          range<float, shard>(data + 5 * n, 4), {}, {})
          .wait({});
    });
    refuses("count", "size x shard", [&](auto& comm, float* data) {
      comm.all_gather(range<const float, shard>(data, 3), range<float, full>(data + 5, 3 * n + 1),
                      {})
          .wait({});
    });
    refuses("overlap", "overlaps", [&](auto& comm, float* data) {
      comm.reduce_scatter(range<const float, partial>(data, 4 * n),
                          range<float, shard>(data + 4 * comm.rank() + 1, 4), {}, {})
          .wait({});
    });
    refuses("overlap", "overlaps", [&](auto& comm, float* data) {
      comm.all_gather(range<const float, shard>(data + 4 * comm.rank() + 1, 4),
                      range<float, full>(data, 4 * n), {})
          .wait({});
    });
    refuses("null", "null pointer", [&](auto& comm, float* data) {
      comm.all_gather(range<const float, shard>(nullptr, 4), range<float, full>(data, 4 * n), {})
          .wait({});
    });
    refuses("root", "root", [&](auto& comm, float* data) {
      comm.broadcast(range<float, full>(data, 4), comm.size(), {}).wait({});
    });
    refuses("root", "root", [&](auto& comm, float* data) {
      comm.broadcast(range<float, full>(data, 4), -1, {}).wait({});
    });
  }
}

/// The parts of the contract in which the element type plays no role.
template <class Backend>
void check_order_and_misuse() {
  SECTION("all_reduce") { check_all_reduce<Backend>(); }
  SECTION("back to back without barriers") { check_back_to_back<Backend>(1000); }
  SECTION("several in flight") { check_in_flight<Backend>(); }
  SECTION("split") { check_split<Backend>(); }
  SECTION("claims") { check_claims<Backend>(); }
  SECTION("misuse") { check_misuse<Backend>(); }
}

/// Everything above but the mean, as the sections of one test case.
template <class Backend>
void check_contract() {
  const auto sizes = Backend::sizes();
  const std::vector<int> few = sizes.size() > 1 ? std::vector<int>{2, 3, 8} : sizes;
  SECTION("reduce_scatter, float") { check_reduce_scatter<Backend, float>(sizes, false); }
  SECTION("reduce_scatter, double") { check_reduce_scatter<Backend, double>(sizes, false); }
  SECTION("reduce_scatter, bfloat16") { check_reduce_scatter<Backend, bfloat16>(sizes, false); }
  SECTION("reduce_scatter, float16") { check_reduce_scatter<Backend, float16>(sizes, false); }
  SECTION("reduce_scatter, unrounded") {
    check_reduce_scatter<Backend, bfloat16, float>(sizes, false);
    check_reduce_scatter<Backend, float16, float>(sizes, false);
  }
  SECTION("reduce_scatter, large") {
    check_reduce_scatter<Backend, float>(few, true);
    check_reduce_scatter<Backend, bfloat16>(few, true);
  }
  SECTION("movement, every type") {
    check_movement<Backend, float>(sizes, false);
    check_movement<Backend, double>(sizes, false);
    check_movement<Backend, bfloat16>(sizes, false);
    check_movement<Backend, float16>(sizes, false);
    check_movement<Backend, std::uint16_t>(sizes, false);
    check_movement<Backend, std::uint64_t>(sizes, false);
  }
  SECTION("movement, large") {
    check_movement<Backend, float>(few, true);
    check_movement<Backend, std::uint16_t>(few, true);
  }
  check_order_and_misuse<Backend>();
}

/// For decorators that pass ranges on as they are: one type of each kind is enough.
template <class Backend>
void check_decorator_contract() {
  const std::vector<int> sizes{1, 2, 3, 5, 8};
  SECTION("reduce_scatter") { check_reduce_scatter<Backend, float>(sizes, false); }
  SECTION("reduce_scatter, unrounded") {
    check_reduce_scatter<Backend, bfloat16, float>(sizes, false);
  }
  SECTION("movement") {
    check_movement<Backend, std::uint16_t>(sizes, false);
    check_movement<Backend, std::uint64_t>(sizes, false);
  }
  SECTION("movement, large") { check_movement<Backend, std::uint16_t>({3}, true); }
  check_order_and_misuse<Backend>();
}

}  // namespace zero::test
