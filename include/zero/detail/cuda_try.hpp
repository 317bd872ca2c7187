// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <zero/error.hpp>

namespace zero {

/// A call of the CUDA runtime failed. The code is a cudaError_t.
class cuda_error : public error {
 public:
  cuda_error(const std::string& operation, int code, const std::string& name,
             const std::string& description)
      : error(operation + ": " + name + " (" + std::to_string(code) + "), " + description),
        operation_(operation),
        code_(code) {}

  const std::string& operation() const noexcept { return operation_; }
  int code() const noexcept { return code_; }

 private:
  std::string operation_;
  int code_;
};

namespace detail {

/// Throws cuda_error unless `result`, a cudaError_t, says success.
///
/// The runtime's functions are found through the type of the argument, so that this header needs
/// none of CUDA's: who has a cudaError_t has them.
template <class Result>
void cuda_try(Result result, const char* operation) {
  if (static_cast<int>(result) == 0) return;
  throw cuda_error(operation, static_cast<int>(result), cudaGetErrorName(result),
                   cudaGetErrorString(result));
}

}  // namespace detail
}  // namespace zero
