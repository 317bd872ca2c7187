// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include <zero/kernels/cuda/fold_body.hpp>
#include <zero/kernels/cuda/launch.cuh>
#include <zero/kernels/fold.hpp>

namespace zero::kernels {

template <class T, class U>
void fold(cuda_space, std::span<const T* const> inputs, U* output, std::uint64_t count, float scale,
          cuda_stream stream) {
  using body_type = cuda::fold_body<T, U>;
  static_assert(std::is_floating_point_v<typename body_type::compute_type>,
                "zero::kernels::fold: this element type is moved, not summed");
  static_assert(std::is_same_v<U, T> || std::is_same_v<U, typename body_type::compute_type>,
                "zero::kernels::fold: the output must be the input type or its compute type");
  cuda::launch("kernels::fold", body_type(inputs, output, count, scale),
               cuda::threads_for(count, body_type::elements), stream);
}

}  // namespace zero::kernels
