// SPDX-License-Identifier: Apache-2.0
// Prints what the instantiation of all optimizers with one precision policy must consist of: for
// each entry point its name, the 128-bit loads and the 128-bit stores that its bytes per thread
// amount to ("any" for kernels of one thread). Everything is derived from the types.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include <zero/kernels/cuda/cast_body.hpp>
#include <zero/kernels/cuda/control_body.hpp>
#include <zero/kernels/cuda/fold_body.hpp>
#include <zero/kernels/cuda/norm_body.hpp>
#include <zero/kernels/cuda/update_body.hpp>

#include "support/kernel_name.hpp"

namespace {

namespace cuda = zero::kernels::cuda;

std::set<std::string> lines;

template <class Body>
void expect(const char* entry, const std::string& loads, const std::string& stores) {
  lines.insert(zero::test::kernel_name<Body>(entry) + "\t" + loads + "\t" + stores);
}

template <class Body>
void expect(const char* entry, std::size_t loaded_bytes, std::size_t stored_bytes) {
  expect<Body>(entry, std::to_string(loaded_bytes / cuda::access_bytes),
               std::to_string(stored_bytes / cuda::access_bytes));
}

template <class O, class P, class G>
void expect_update() {
  constexpr std::size_t moments = O::moments_per_element * sizeof(typename P::moment_type);
  constexpr std::size_t master = zero::has_master<P> ? sizeof(zero::master_type<P>) : 0;
  constexpr std::size_t parameter = sizeof(typename P::parameter_type);
  // A master that holds the whole value makes reading the parameter superfluous.
  constexpr bool reads_parameter = master < sizeof(typename P::compute_type);
  constexpr std::size_t read = (reads_parameter ? parameter : 0) + master + moments + sizeof(G);
  constexpr std::size_t written = parameter + master + moments;
  expect<cuda::update_body<O, P, G>>("run", cuda::update_elements * read,
                                     cuda::update_elements * written);
}

template <class O, class P>
void expect_optimizer() {
  expect_update<O, P, typename P::gradient_type>();
  expect_update<O, P, typename P::accumulation_type>();
  expect<cuda::advance_body<O, P>>("run", "any", "any");
}

template <class T, class U>
void expect_fold() {
  using body = cuda::fold_body<T, U>;
  // Eight inputs of a complete group, and the subtrees of one, two and four behind the last group.
  constexpr std::size_t inputs = 8 + 1 + 2 + 4;
  expect<body>("run", inputs * body::elements * sizeof(T), body::elements * sizeof(U));
}

template <class T, bool Squares>
void expect_sums() {
  constexpr std::size_t rows_in_flight = 8;
  expect<cuda::chunk_sums_body<T, Squares>>("sum_chunks", rows_in_flight * cuda::access_bytes, 0);
}

template <class A, class B>
void expect_convert() {
  if constexpr (!std::is_same_v<A, B>) {
    constexpr std::size_t elements = cuda::cast_elements<A, B>;
    expect<cuda::convert_body<A, B>>("run", elements * sizeof(A), elements * sizeof(B));
  }
}

template <class G, class A>
void expect_accumulate() {
  constexpr std::size_t elements = cuda::cast_elements<G, A>;
  expect<cuda::accumulate_body<G, A>>("run", elements * (sizeof(G) + sizeof(A)),
                                      elements * sizeof(A));
}

template <class P>
void expect_precision() {
  using gradient = typename P::gradient_type;
  using accumulation = typename P::accumulation_type;
  using parameter = typename P::parameter_type;
  expect_optimizer<zero::adamw, P>();
  expect_optimizer<zero::adam, P>();
  expect_optimizer<zero::sgd, P>();
  expect_optimizer<zero::lion, P>();
  expect<cuda::step_message_body>("run", "any", "any");
  expect_fold<gradient, gradient>();
  expect_fold<gradient, typename zero::element_traits<gradient>::compute_type>();
  expect_fold<double, double>();
  expect_sums<gradient, true>();
  expect_sums<accumulation, true>();
  expect_sums<double, false>();
  expect_convert<gradient, accumulation>();
  expect_convert<accumulation, gradient>();
  expect_accumulate<gradient, accumulation>();
  expect_convert<parameter, float>();
  expect_convert<float, parameter>();
  expect_convert<float, gradient>();
  expect_accumulate<float, gradient>();
}

template <class P>
bool expect_precision_named(std::string_view name) {
  if (P::name != name) return false;
  expect_precision<P>();
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (!expect_precision_named<zero::fp32>(name) &&
      !expect_precision_named<zero::bf16_mixed>(name) &&
      !expect_precision_named<zero::fp16_mixed>(name) &&
      !expect_precision_named<zero::bf16_mixed_fp32_gradients>(name) &&
      !expect_precision_named<zero::bf16_remainder>(name)) {
    std::fprintf(stderr, "no precision policy is called '%s'\n", argc > 1 ? argv[1] : "");
    return 1;
  }
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}
