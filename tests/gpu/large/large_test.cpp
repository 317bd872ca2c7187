// SPDX-License-Identifier: Apache-2.0
// timeout: 300
// links: zero_gpu_listener zero_gpu_kernels
// More elements than 31 bits can count. All but a few chunks are zero, so that the host knows what
// has to come out everywhere: the sum of squares sees a stray or a missing element.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/error.hpp>
#include <zero/kernels/cast.hpp>
#include <zero/kernels/chunked_norm.hpp>
#include <zero/kernels/instantiate.hpp>

#include "gpu/device_array.hpp"

namespace {

using namespace gpu_tests;
using zero::bfloat16;
using zero::kernels::norm_chunk_elements;

// The simulated device has no memory to waste.
constexpr std::uint64_t last_chunk = std::uint64_t{1} << ((is_simulated ? 20U : 31U) - 10U);
constexpr std::uint64_t rest = 64;
constexpr std::uint64_t count = last_chunk * norm_chunk_elements + rest;

/// Where the values are not zero: the first element, elsewhere, and on both sides of 2^31.
constexpr std::array<std::uint64_t, 4> filled_chunks = {0, last_chunk / 3, last_chunk - 1,
                                                        last_chunk};

std::uint64_t length_of(std::uint64_t chunk) {
  return chunk == last_chunk ? rest : norm_chunk_elements;
}

/// The values of the filled chunks of one array.
template <class T>
using chunk_values = std::array<std::vector<T>, filled_chunks.size()>;

chunk_values<bfloat16> random_chunks(std::uint64_t seed) {
  chunk_values<bfloat16> values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = kernel_tests::uneven_values<bfloat16>(length_of(filled_chunks[i]), seed + i);
  }
  return values;
}

template <class T>
chunk_values<T> zero_chunks() {
  chunk_values<T> values;
  for (std::size_t i = 0; i < values.size(); ++i) values[i].resize(length_of(filled_chunks[i]));
  return values;
}

/// The sum of squares over an array that is zero but for these chunks.
template <class T>
double expected_squares(const chunk_values<T>& values) {
  zero::kernels::cpu::chunk_sums sums;
  std::size_t next = 0;
  for (std::uint64_t chunk = 0; chunk <= last_chunk; ++chunk) {
    if (next == filled_chunks.size() || chunk != filled_chunks[next]) {
      sums.add(0.0);
      continue;
    }
    sums.add(zero::kernels::sum_of_squares(zero::host_space{}, values[next].data(),
                                           values[next].size()));
    ++next;
  }
  return sums.total();
}

template <class T>
void write_chunks(device_array<T>& there, const chunk_values<T>& values) {
  there.fill_bytes(0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    there.write(filled_chunks[i] * norm_chunk_elements, std::span<const T>(values[i]));
  }
}

template <class T>
bool holds(const device_array<T>& there, const chunk_values<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    std::vector<T> values(expected[i].size());
    there.read(filled_chunks[i] * norm_chunk_elements, values);
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (!kernel_tests::same(values[k], expected[i][k])) return false;
    }
  }
  return true;
}

template <class T>
double squares_of(const device_array<T>& there, const zero::unique_cuda_stream& stream) {
  const device_array<double> scratch(zero::kernels::norm_scratch_elements(count), stream);
  device_array<double> total(1, stream);
  total.fill_bytes(0);
  zero::kernels::sum_of_squares(zero::cuda_space{}, static_cast<const T*>(there.data()), count,
                                scratch.data(), total.data(), stream.get());
  return total.read_one();
}

/// Runs the test, or says in one line that this device is too small for it.
template <class Function>
void where_memory_allows(Function function) {
  try {
    function();
  } catch (const zero::cuda_error& failure) {
    if (failure.code() != cudaErrorMemoryAllocation) throw;
    std::printf("too little memory for %llu elements: %s\n", static_cast<unsigned long long>(count),
                failure.what());
    std::exit(77);
  }
}

}  // namespace

TEST_CASE("gpu large: converting and the norm reach every element behind 2^31") {
  where_memory_allows([] {
    const zero::unique_cuda_stream stream;
    const chunk_values<bfloat16> values = random_chunks(11);
    device_array<bfloat16> input(count, stream);
    device_array<float> output(count, stream);
    write_chunks(input, values);
    output.fill_bytes(0xFF);  // NaN: an element that is not written makes the sum bad
    zero::kernels::convert(zero::cuda_space{}, static_cast<const bfloat16*>(input.data()),
                           output.data(), count, stream.get());
    chunk_values<float> expected;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (const bfloat16 value : values[i]) expected[i].push_back(static_cast<float>(value));
    }
    CHECK(holds(output, expected));
    CHECK(squares_of(input, stream) == expected_squares(values));
    CHECK(squares_of(output, stream) == expected_squares(expected));
  });
}

TEST_CASE("gpu large: an update reaches every element behind 2^31") {
  using O = zero::adamw;
  using P = zero::bf16_mixed;
  where_memory_allows([] {
    const zero::unique_cuda_stream stream;
    auto parameters = random_chunks(21);
    const auto gradients = random_chunks(31);
    auto masters = zero_chunks<float>();
    std::array<chunk_values<float>, 2> moments = {zero_chunks<float>(), zero_chunks<float>()};
    for (std::size_t i = 0; i < masters.size(); ++i) {
      for (std::size_t k = 0; k < masters[i].size(); ++k) {
        masters[i][k] = static_cast<float>(parameters[i][k]);
      }
    }

    device_array<bfloat16> device_parameters(count, stream);
    device_array<bfloat16> device_gradients(count, stream);
    device_array<float> device_masters(count, stream);
    std::array<device_array<float>, 2> device_moments = {device_array<float>(count, stream),
                                                         device_array<float>(count, stream)};
    write_chunks(device_parameters, parameters);
    write_chunks(device_gradients, gradients);
    write_chunks(device_masters, masters);
    for (std::size_t k = 0; k < 2; ++k) write_chunks(device_moments[k], moments[k]);

    const auto prepared = O{}.prepare(1, {.lr = 0.01, .weight_decay = 0.1});
    std::array<float, O::scalar_count> scalars;
    for (std::size_t k = 0; k < scalars.size(); ++k) scalars[k] = static_cast<float>(prepared[k]);
    const zero::kernels::control_block control;
    const device_array<zero::kernels::control_block> device_control({&control, 1}, stream);
    const device_array<float> device_scalars(scalars, stream);
    const zero::kernels::update_operands<O, P, bfloat16> operands{
        device_parameters.data(),
        device_masters.data(),
        {device_moments[0].data(), device_moments[1].data()},
        device_gradients.data(),
        count};
    zero::kernels::update(zero::cuda_space{}, operands, device_control.data(),
                          device_scalars.data(), stream.get());

    for (std::size_t i = 0; i < masters.size(); ++i) {
      const zero::kernels::update_operands<O, P, bfloat16> part{
          parameters[i].data(),
          masters[i].data(),
          {moments[0][i].data(), moments[1][i].data()},
          gradients[i].data(),
          masters[i].size()};
      zero::kernels::update(zero::host_space{}, part, prepared, control.gradient_scale);
    }
    CHECK(holds(device_parameters, parameters));
    CHECK(holds(device_masters, masters));
    CHECK(holds(device_moments[0], moments[0]));
    CHECK(holds(device_moments[1], moments[1]));
    CHECK(squares_of(device_parameters, stream) == expected_squares(parameters));
    CHECK(squares_of(device_masters, stream) == expected_squares(masters));
    CHECK(squares_of(device_moments[0], stream) == expected_squares(moments[0]));
    CHECK(squares_of(device_moments[1], stream) == expected_squares(moments[1]));
  });
}
