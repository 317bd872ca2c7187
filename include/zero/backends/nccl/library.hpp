// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>

#include <zero/error.hpp>
#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/float16.hpp>

#if NCCL_VERSION_CODE < 21801
#error "zero: the NCCL backend needs NCCL 2.18.1 or newer: it splits communicators"
#endif

namespace zero {

/// A call of NCCL failed where no communicator exists yet, or the library is too old.
class nccl_error : public error {
 public:
  nccl_error(const std::string& what, int code) : error(what), code_(code) {}

  /// The ncclResult_t.
  int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {

/// "2.18.1" of the number that ncclGetVersion gives.
inline std::string nccl_version_text(int code) {
  // Up to 2.8 the numbers had one digit less.
  const int unit = code < 10000 ? 1000 : 10000;
  return std::to_string(code / unit) + '.' + std::to_string(code % unit / 100) + '.' +
         std::to_string(code % 100);
}

/// "ncclReduceScatter: unhandled cuda error (1), <what NCCL remembers>".
inline std::string describe_nccl(const std::string& function, ncclResult_t result,
                                 ncclComm_t comm) {
  std::string text =
      function + ": " + ncclGetErrorString(result) + " (" + std::to_string(result) + ")";
  const char* const remembered = ncclGetLastError(comm);
  if (remembered != nullptr && *remembered != '\0') text += std::string(", ") + remembered;
  // NCCL's own texts may end a line; ours are one.
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

/// The version of the library that is loaded, which may differ from that of the header.
/// Throws: nccl_error when it is older than what this backend needs.
inline int require_nccl() {
  int version = 0;
  const ncclResult_t result = ncclGetVersion(&version);
  if (result != ncclSuccess) {
    throw nccl_error(describe_nccl("ncclGetVersion", result, nullptr), result);
  }
  constexpr int oldest = NCCL_VERSION(2, 18, 1);
  if (version < oldest) {
    throw nccl_error("zero::nccl_communicator: NCCL " + nccl_version_text(version) +
                         " is loaded, " + nccl_version_text(oldest) + " or newer is needed",
                     ncclInvalidUsage);
  }
  return version;
}

/// Aborts of several communicators in one group: one by one they can wait for each other.
constexpr int nccl_group_abort_version = NCCL_VERSION(2, 22, 3);

/// How NCCL sees an element type. Bit patterns that it has no type for travel as bytes.
template <class T>
struct nccl_element {
  static constexpr ncclDataType_t type = ncclUint8;
  static constexpr std::uint64_t units = sizeof(T);
};
template <>
struct nccl_element<float> {
  static constexpr ncclDataType_t type = ncclFloat32;
  static constexpr std::uint64_t units = 1;
};
template <>
struct nccl_element<double> {
  static constexpr ncclDataType_t type = ncclFloat64;
  static constexpr std::uint64_t units = 1;
};
template <>
struct nccl_element<bfloat16> {
  static constexpr ncclDataType_t type = ncclBfloat16;
  static constexpr std::uint64_t units = 1;
};
template <>
struct nccl_element<float16> {
  static constexpr ncclDataType_t type = ncclFloat16;
  static constexpr std::uint64_t units = 1;
};
template <>
struct nccl_element<std::uint64_t> {
  static constexpr ncclDataType_t type = ncclUint64;
  static constexpr std::uint64_t units = 1;
};

/// A sum whose inputs are multiplied first: NCCL reads the factor in the type of the collective, so
/// it is kept as a T, and the operator cannot be used for another type.
template <class T>
class nccl_scaled_sum {
 public:
  /// `result` says whether there is an operator.
  nccl_scaled_sum(T factor, ncclComm_t comm) : factor_(factor), comm_(comm) {
    result_ = ncclRedOpCreatePreMulSum(&operation_, &factor_, nccl_element<T>::type,
                                       ncclScalarHostImmediate, comm);
  }
  nccl_scaled_sum(const nccl_scaled_sum&) = delete;
  nccl_scaled_sum& operator=(const nccl_scaled_sum&) = delete;
  /// NCCL needs it only until the call that is given it returns.
  ~nccl_scaled_sum() {
    if (result_ == ncclSuccess) ncclRedOpDestroy(operation_, comm_);
  }

  ncclResult_t result() const noexcept { return result_; }
  ncclRedOp_t get() const noexcept { return operation_; }

 private:
  T factor_;
  ncclComm_t comm_;
  ncclRedOp_t operation_ = ncclSum;
  ncclResult_t result_ = ncclSuccess;
};

}  // namespace detail
}  // namespace zero
