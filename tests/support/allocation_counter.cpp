// SPDX-License-Identifier: Apache-2.0
#include "support/allocation_counter.hpp"

#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ZERO_TEST_SANITIZER_OWNS_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ZERO_TEST_SANITIZER_OWNS_MALLOC 1
#endif
#endif

#ifdef ZERO_TEST_SANITIZER_OWNS_MALLOC
#include <sanitizer/allocator_interface.h>
#endif

namespace {

constinit thread_local std::uint64_t allocations = 0;
constinit thread_local std::uint64_t allocated_bytes = 0;

void count(std::size_t bytes) noexcept {
  ++allocations;
  allocated_bytes += bytes;
}

}  // namespace

std::uint64_t zero::test::allocations_of_this_thread() noexcept { return allocations; }
std::uint64_t zero::test::allocated_bytes_of_this_thread() noexcept { return allocated_bytes; }

#ifdef ZERO_TEST_SANITIZER_OWNS_MALLOC

namespace {

void count_allocation(const volatile void*, std::size_t bytes) { count(bytes); }
void ignore_free(const volatile void*) {}

[[maybe_unused]] const int hooks_installed =
    __sanitizer_install_malloc_and_free_hooks(count_allocation, ignore_free);

}  // namespace

#else

// glibc lets a program define these; free() stays glibc's own. operator new ends in malloc.
extern "C" {

void* __libc_malloc(std::size_t bytes);                             // NOLINT: glibc's names
void* __libc_calloc(std::size_t count, std::size_t bytes);          // NOLINT
void* __libc_realloc(void* pointer, std::size_t bytes);             // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t bytes);    // NOLINT

void* malloc(std::size_t bytes) {
  count(bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t elements, std::size_t bytes) {
  count(elements * bytes);
  return __libc_calloc(elements, bytes);
}
void* realloc(void* pointer, std::size_t bytes) {
  count(bytes);
  return __libc_realloc(pointer, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** pointer, std::size_t alignment, std::size_t bytes) {
  count(bytes);
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* allocated = __libc_memalign(alignment, bytes);
  if (allocated == nullptr) return ENOMEM;
  *pointer = allocated;
  return 0;
}

}  // extern "C"

#endif
