// SPDX-License-Identifier: Apache-2.0
// labels: slow fault
// timeout: 300
// More than 2^31 elements without their memory: one small file is mapped again and again.
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <zero/kernels/cast.hpp>
#include <zero/kernels/norm.hpp>
#include <zero/kernels/update.hpp>

namespace {

constexpr std::uint64_t beyond_32_bits = (std::uint64_t{1} << 31U) + 64;

/// `count` elements of address space. Untouched pages read as zero and cost nothing.
template <class T>
class sparse_buffer {
 public:
  explicit sparse_buffer(std::uint64_t count) : bytes_(count * sizeof(T)) {
    void* const address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
      throw std::runtime_error("mmap failed");
    data_ = static_cast<T*>(address);
    madvise(address, bytes_, MADV_HUGEPAGE);  // fewer page faults where the kernel allows it
  }
  sparse_buffer(const sparse_buffer&) = delete;
  sparse_buffer& operator=(const sparse_buffer&) = delete;
  ~sparse_buffer() { munmap(data_, bytes_); }

  /// Puts the same pages behind every window of the buffer but the last: then it can be written
  /// from end to end. What an element of a shared window holds afterwards means nothing.
  void share_all_windows_but_the_last() {
    constexpr std::size_t window = std::size_t{1} << 24U;
    const int file = memfd_create("zero_large_count", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(window)) != 0) {
      throw std::runtime_error("memfd failed");
    }
    auto* const base = reinterpret_cast<unsigned char*>(data_);
    for (std::size_t at = 0; at + window <= bytes_ - 4096; at += window) {
      if (mmap(base + at, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
          MAP_FAILED) {
        throw std::runtime_error("mmap of a window failed");
      }
    }
    close(file);
  }

  T* data() { return data_; }
  T& operator[](std::uint64_t i) { return data_[i]; }

 private:
  std::size_t bytes_;
  T* data_;
};

TEST_CASE("fault_37 a sum of squares over 2^31 + 64 elements sees both ends") {
  sparse_buffer<zero::bfloat16> values(beyond_32_bits);
  values[0] = zero::bfloat16{1.0F};
  values[(std::uint64_t{1} << 31U) - 1] = zero::bfloat16{2.0F};
  values[std::uint64_t{1} << 31U] = zero::bfloat16{3.0F};
  values[beyond_32_bits - 1] = zero::bfloat16{4.0F};
  CHECK(zero::kernels::sum_of_squares(zero::host_space{}, values.data(), beyond_32_bits) == 30.0);
}

/// Gradient descent without moments: as few arrays as an update can have.
struct descent {
  static constexpr std::string_view name = "descent";
  static constexpr std::size_t moments_per_element = 0;
  static constexpr std::size_t scalar_count = 1;
  double weight_decay = 0.0;

  std::array<double, 1> prepare(std::uint64_t, const zero::update_arguments& arguments) const {
    return {-arguments.lr};
  }
  template <class Ops, class V>
  static void update(V& parameter, std::array<V, 0>&, const V& gradient,
                     const std::array<V, 1>& scalars) {
    parameter = Ops::fma(scalars[0], gradient, parameter);
  }
};
static_assert(zero::Optimizer<descent>);

TEST_CASE("fault_37 an update of 2^31 + 64 elements reaches the last one") {
  // 4096 bytes at the end of each array stay outside the shared windows.
  sparse_buffer<zero::bfloat16> parameters(beyond_32_bits);
  sparse_buffer<std::uint16_t> remainders(beyond_32_bits);
  sparse_buffer<zero::bfloat16> gradients(beyond_32_bits);
  parameters.share_all_windows_but_the_last();
  remainders.share_all_windows_but_the_last();

  const std::uint64_t last = beyond_32_bits - 1;
  gradients[last] = zero::bfloat16{1.0F};
  const zero::kernels::update_operands<descent, zero::bf16_remainder, zero::bfloat16> operands{
      parameters.data(), remainders.data(), {}, gradients.data(), beyond_32_bits};
  const auto scalars = descent{}.prepare(1, {.lr = 0.25, .weight_decay = 0.0});
  zero::kernels::update(zero::host_space{}, operands, scalars, 1.0F);
  CHECK(zero::join_float(parameters[last], remainders[last]) == -0.25F);
  CHECK(static_cast<float>(parameters[last - 1]) == 0.0F);
}

}  // namespace
