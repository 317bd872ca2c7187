// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <zero/kernels/cuda/launch.cuh>
#include <zero/kernels/cuda/norm_body.hpp>
#include <zero/kernels/norm.hpp>

namespace zero::kernels {
namespace cuda {

/// The form of chunk_sums_body in which the lanes of a chunk are neighbouring threads.
///
/// Addition commutes, so after each exchange both partners hold the tree's sum.
template <class Body>
__device__ void run_lanes(const Body& body, std::uint64_t thread, std::uint64_t threads) {
  constexpr unsigned lanes = Body::lanes;
  const auto lane = static_cast<unsigned>(thread % lanes);
  const unsigned mates = ((1U << lanes) - 1U) << (threadIdx.x % 32U - lane);
  for (std::uint64_t chunk = thread / lanes; chunk < body.chunks(); chunk += threads / lanes) {
    typename Body::lane_sums sums = body.add_up(chunk, lane);
    for (unsigned half = lanes / 2; half > 0; half /= 2) {
      typename Body::lane_sums other;
      for (std::size_t k = 0; k < Body::elements; ++k) {
        other[k] = __shfl_xor_sync(mates, sums[k], half);
      }
      Body::join(sums, other);
    }
    if (lane == 0) body.write(chunk, sums);
  }
}

/// The entry point of one level of a sum.
template <class Body>
__global__ void __launch_bounds__(threads_per_block, blocks_per_multiprocessor)
    sum_chunks(const __grid_constant__ Body body) {
  run_lanes(body, thread_index(), thread_count());
}

}  // namespace cuda

template <class G>
void sum_of_squares(cuda_space, const G* values, std::uint64_t count, double* scratch,
                    double* total, cuda_stream stream) {
  using squares = cuda::chunk_sums_body<G, true>;
  using sums = cuda::chunk_sums_body<double, false>;
  const squares first(values, count, scratch, total);
  cuda::launch("kernels::sum_of_squares", &cuda::sum_chunks<squares>, first,
               first.chunks() * squares::lanes, stream);
  for (std::uint64_t left = first.chunks(); left > 1;) {
    double* const above = scratch + left;
    const sums next(scratch, left, above, total);
    cuda::launch("kernels::sum_of_squares", &cuda::sum_chunks<sums>, next,
                 next.chunks() * sums::lanes, stream);
    scratch = above;
    left = next.chunks();
  }
}

}  // namespace zero::kernels
