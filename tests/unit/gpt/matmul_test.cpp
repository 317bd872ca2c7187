// SPDX-License-Identifier: Apache-2.0
// links: gpt_model
#include "matmul.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "counter_random.hpp"

namespace {

std::vector<float> random_values(std::size_t count, std::uint64_t key) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(gpt::unit_interval(gpt::counter_hash({key, i})) - 0.5);
  }
  return values;
}

std::uint64_t bits_of(const std::vector<float>& values) {
  std::uint64_t hash = 0;
  for (const float value : values) {
    hash = gpt::counter_hash({hash, std::bit_cast<std::uint32_t>(value)});
  }
  return hash;
}

// A weight gradient of width x width summed over 4096 rows, once with B and once with A transposed.
std::uint64_t weight_gradient_bits(std::int64_t width) {
  constexpr std::int64_t rows = 4096;
  const auto count = static_cast<std::size_t>(width * rows);
  const std::vector<float> a = random_values(count, 1);
  const std::vector<float> b = random_values(count, 2);
  std::vector<float> c(static_cast<std::size_t>(width * width));
  gpt::matmul({width, width, rows}, gpt::matrix<float>{a.data(), rows},
              gpt::transposed(gpt::matrix<float>{b.data(), rows}), c.data(), width);
  const std::uint64_t b_transposed = bits_of(c);
  gpt::matmul({width, width, rows}, gpt::transposed(gpt::matrix<float>{a.data(), width}),
              gpt::matrix<float>{b.data(), width}, c.data(), width);
  return gpt::counter_hash({b_transposed, bits_of(c)});
}

// The shapes whose bits depend on the number of threads inside the library: 384 where the
// processor has AVX-512, 64 with AVX2 as well.
std::uint64_t weight_gradient_bits() {
  gpt::single_threaded_math();
  return gpt::counter_hash({weight_gradient_bits(384), weight_gradient_bits(64)});
}

std::vector<std::uint64_t> bits_in_threads(std::size_t count) {
  std::vector<std::uint64_t> bits(count);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < count; ++rank) {
    ranks.emplace_back([&bits, rank] { bits[rank] = weight_gradient_bits(); });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  return bits;
}

constexpr const char* result_variable = "GPT_MATMUL_TEST_RESULT";

// Runs this program again, the case "matmul child" alone, with so many threads in its environment.
std::string result_of_child(const std::string& threads) {
  const std::filesystem::path result =
      std::filesystem::temp_directory_path() /
      ("gpt_matmul_test." + std::to_string(getpid()) + ".txt");
  std::vector<std::string> variables{"OMP_NUM_THREADS=" + threads,
                                     std::string(result_variable) + "=" + result.string()};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("OMP_NUM_THREADS=")) {
      variables.emplace_back(*variable);
    }
  }
  std::vector<char*> environment;
  for (std::string& variable : variables) {
    environment.push_back(variable.data());
  }
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe";
  std::string test = "matmul child";
  char* arguments[] = {program.data(), test.data(), nullptr};
  // The child's report would stand in the middle of ours.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failure = posix_spawn(&child, program.c_str(), &actions, nullptr, arguments,
                                  environment.data());
  posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  if (failure != 0 || waitpid(child, &status, 0) != child || status != 0) {
    return "the child failed with status " + std::to_string(status);
  }
  std::string bits;
  std::ifstream(result) >> bits;
  std::filesystem::remove(result);
  return bits;
}

}  // namespace

TEST_CASE("matmul child", "[.child]") {
  if (const char* const result = std::getenv(result_variable)) {
    std::ofstream file(result);
    file << weight_gradient_bits();
    REQUIRE(file.flush());
  }
}

TEST_CASE("matmul: a weight gradient has the same bits in any thread and process") {
  const std::uint64_t expected = bits_in_threads(1).front();
  for (const std::uint64_t bits : bits_in_threads(4)) {
    REQUIRE(bits == expected);
  }
  // With one thread in its environment a process needs no call, with two it does.
  REQUIRE(result_of_child("1") == std::to_string(expected));
  REQUIRE(result_of_child("2") == std::to_string(expected));
}

TEST_CASE("matmul: float agrees with plain loops for every transposition") {
  constexpr std::int64_t rows = 7;
  constexpr std::int64_t columns = 5;
  constexpr std::int64_t inner = 19;
  constexpr std::int64_t stride = 23;  // larger than any extent: parts of larger matrices
  const std::vector<float> a = random_values(stride * stride, 3);
  const std::vector<float> b = random_values(stride * stride, 4);
  const std::vector<float> start = random_values(stride * stride, 5);
  const std::vector<double> wide_a(a.begin(), a.end());
  const std::vector<double> wide_b(b.begin(), b.end());
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const float beta : {0.0f, 1.0f, 0.5f}) {
        std::vector<float> c = start;
        std::vector<double> wide_c(start.begin(), start.end());
        gpt::matmul({rows, columns, inner}, gpt::matrix<float>{a.data(), stride, a_transposed},
                    gpt::matrix<float>{b.data(), stride, b_transposed}, c.data(), stride,
                    {0.25f, beta});
        gpt::matmul({rows, columns, inner},
                    gpt::matrix<double>{wide_a.data(), stride, a_transposed},
                    gpt::matrix<double>{wide_b.data(), stride, b_transposed}, wide_c.data(),
                    stride, {0.25, beta});
        CAPTURE(a_transposed, b_transposed, beta);
        for (std::size_t i = 0; i < c.size(); ++i) {
          REQUIRE(static_cast<double>(c[i]) == Approx(wide_c[i]).margin(1e-6));
        }
      }
    }
  }
}

TEST_CASE("matmul: arguments that the library refuses throw") {
  std::vector<float> values(4);
  const gpt::matrix<float> m{values.data(), 1};
  REQUIRE_THROWS_WITH(gpt::matmul({2, 2, 2}, m, m, values.data(), 1),
                      Catch::Contains("dnnl_sgemm failed"));
}
