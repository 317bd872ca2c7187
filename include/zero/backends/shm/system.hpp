// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <zero/error.hpp>

// What the shared-memory backend asks of Linux: memfd_create, futexes, and pidfds.

namespace zero::detail {

/// Throws zero::error with the text of errno.
[[noreturn]] inline void throw_system_error(const std::string& what, int code = errno) {
  throw error("zero::shm: " + what + ": " + std::generic_category().message(code));
}

/// Closes a file descriptor once.
class owned_descriptor {
 public:
  owned_descriptor() = default;
  explicit owned_descriptor(int descriptor) noexcept : descriptor_(descriptor) {}
  owned_descriptor(owned_descriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  owned_descriptor& operator=(owned_descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~owned_descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// Where a segment can be found, by whom, and how it is recognised. Plain bytes: it travels through
/// shared memory.
struct segment_offer {
  std::int64_t pid = 0;
  std::int64_t descriptor = -1;
  std::uint64_t nonce[2] = {};
  std::uint64_t bytes = 0;
};

/// The first bytes of every segment.
struct segment_identity {
  static constexpr std::uint64_t expected_magic = 0x7A65'726F'2D73'686DU;  // "zero-shm"
  std::uint64_t magic;
  std::uint64_t nonce[2];
  std::uint64_t bytes;
};

/// Memory without a name that several processes map.
///
/// It lives as long as a mapping or a descriptor: nothing is ever left behind, however a process
/// ends. Its size is sealed, so that no process can take pages away from under another one.
class shared_segment {
 public:
  /// `bytes` of zeros, with the identity at the front. Throws: zero::error.
  static shared_segment create(std::uint64_t bytes) {
    shared_segment made;
    made.descriptor_ =
        owned_descriptor(::memfd_create("zero-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!made.descriptor_) throw_system_error("memfd_create");
    if (::ftruncate(made.descriptor_.get(), static_cast<off_t>(bytes)) != 0) {
      throw_system_error("a segment of " + std::to_string(bytes) + " bytes");
    }
    if (::fcntl(made.descriptor_.get(), F_ADD_SEALS, expected_seals) != 0) {
      throw_system_error("sealing a segment");
    }
    made.map(made.descriptor_.get(), bytes);
    auto& identity = *reinterpret_cast<segment_identity*>(made.base_);
    identity.bytes = bytes;
    const auto wanted = static_cast<ssize_t>(sizeof(identity.nonce));
    if (::getrandom(identity.nonce, sizeof(identity.nonce), 0) != wanted) {
      throw_system_error("getrandom");
    }
    identity.magic = segment_identity::expected_magic;
    return made;
  }

  /// Maps the segment that another process (or another thread of this one) holds open.
  /// Throws: zero::error that says what to do where this process may not look into that one.
  static shared_segment open(const segment_offer& offer) {
    const std::string path =
        "/proc/" + std::to_string(offer.pid) + "/fd/" + std::to_string(offer.descriptor);
    const owned_descriptor opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!opened) {
      throw_system_error("cannot open " + path +
                         " (ranks share memory when they run on one host, as one user, in one pid "
                         "namespace, with /proc mounted; otherwise use gloo_communicator)");
    }
    struct stat status = {};
    if (::fstat(opened.get(), &status) != 0) throw_system_error("fstat of " + path);
    if (static_cast<std::uint64_t>(status.st_size) != offer.bytes ||
        (::fcntl(opened.get(), F_GET_SEALS) & expected_seals) != expected_seals) {
      throw error("zero::shm: " + path + " is not the segment that was offered: it belongs to " +
                  "another host, or to a run that has ended");
    }
    shared_segment made;
    made.map(opened.get(), offer.bytes);
    const auto& identity = *reinterpret_cast<const segment_identity*>(made.base_);
    if (identity.magic != segment_identity::expected_magic || identity.nonce[0] != offer.nonce[0] ||
        identity.nonce[1] != offer.nonce[1]) {
      throw error("zero::shm: " + path + " does not carry the nonce that was offered: it belongs " +
                  "to another host, or to a run that has ended");
    }
    return made;
  }

  shared_segment(shared_segment&& other) noexcept
      : descriptor_(std::move(other.descriptor_)),
        base_(std::exchange(other.base_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  shared_segment& operator=(shared_segment&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~shared_segment() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }

  std::byte* base() const noexcept { return base_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

  /// Requires: made by create, the descriptor not yet closed.
  segment_offer offer() const noexcept {
    const auto& identity = *reinterpret_cast<const segment_identity*>(base_);
    return {.pid = ::getpid(),
            .descriptor = descriptor_.get(),
            .nonce = {identity.nonce[0], identity.nonce[1]},
            .bytes = bytes_};
  }
  /// To be called when every rank has mapped the segment.
  void close_descriptor() noexcept { owned_descriptor(std::move(descriptor_)); }

  /// Takes the pages now: a later lack of memory would be a SIGBUS, here it is an error.
  void populate(std::uint64_t offset, std::uint64_t bytes) const {
    if (bytes == 0) return;
    constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, since Linux 5.14
    while (::madvise(base_ + offset, bytes, populate_write) != 0) {
      if (errno == EINVAL) return;  // an older kernel: the pages come at the first touch
      if (errno != EINTR && errno != EAGAIN) {
        throw_system_error("no memory for " + std::to_string(bytes) + " shared bytes");
      }
    }
  }
  /// Gives the pages back to the system at once, whoever still maps them; they read as zeros.
  void drop(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    if (bytes != 0) ::madvise(base_ + offset, bytes, MADV_REMOVE);
  }

 private:
  static constexpr int expected_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

  shared_segment() = default;

  void map(int descriptor, std::uint64_t bytes) {
    void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (address == MAP_FAILED) {
      throw_system_error("mapping a segment of " + std::to_string(bytes) + " bytes");
    }
    base_ = static_cast<std::byte*>(address);
    bytes_ = bytes;
  }

  owned_descriptor descriptor_;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

using futex_word = std::atomic<std::uint32_t>;
static_assert(futex_word::is_always_lock_free && sizeof(futex_word) == sizeof(std::uint32_t));

/// Sleeps while `word` is `value`, at most until `deadline`. May return early.
inline void futex_wait(const futex_word& word, std::uint32_t value,
                       std::chrono::steady_clock::time_point deadline) noexcept {
  // steady_clock is CLOCK_MONOTONIC, the clock of FUTEX_WAIT_BITSET's absolute time.
  const auto since_boot = deadline.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  const timespec until{
      .tv_sec = static_cast<time_t>(seconds.count()),
      .tv_nsec = static_cast<long>(std::chrono::nanoseconds(since_boot - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, value, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

inline void futex_wake_all(futex_word& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// A descriptor that becomes readable when the process ends; empty when it has ended already.
/// Throws: zero::error where the kernel has no pidfds.
inline owned_descriptor open_process(std::int64_t pid) {
  const auto opened = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
  if (opened < 0 && errno != ESRCH) {
    throw_system_error("pidfd_open of process " + std::to_string(pid) +
                       " (Linux 5.3 or newer is needed to notice when a peer dies; otherwise use "
                       "gloo_communicator)");
  }
  return owned_descriptor(opened);
}

}  // namespace zero::detail
