// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cxxabi.h>

#include <cstdlib>
#include <string>
#include <typeinfo>

namespace zero::test {

/// A symbol as c++filt prints it; what is no mangled name stays as it is.
inline std::string demangle(const char* symbol) {
  int status = 0;
  char* const text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : symbol;
  std::free(text);
  return name;
}

/// The demangled name of the device code `entry<Body>`, an entry point of kernels/cuda.
template <class Body>
std::string kernel_name(const std::string& entry) {
  const std::string body = demangle(typeid(Body).name());
  const std::string closing = body.back() == '>' ? " >" : ">";
  return "void zero::kernels::cuda::" + entry + "<" + body + closing + "(" + body + ")";
}

}  // namespace zero::test
