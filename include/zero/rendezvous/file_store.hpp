// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <zero/error.hpp>
#include <zero/rendezvous/detail/file_run.hpp>
#include <zero/rendezvous/detail/posix_files.hpp>
#include <zero/rendezvous/error.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero {

struct file_store_options {
  /// Tells apart runs that gather in one directory at the same time: the launcher's job id. Runs
  /// that follow each other need none.
  std::string run_id;
  /// How long the constructor waits for the other ranks.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
};

/// A store in a directory that all ranks see: one host, or several with a shared file system.
///
/// The constructor returns when all ranks have come. Each run has a directory of its own below the
/// given one (mode 0700), so files of an earlier run, finished or killed, are never read, and rank
/// 0 removes those whose processes have ended. The last rank that leaves removes the run, and the
/// given directory too if the run had made it. A rank that was killed counts as gone for ranks of
/// its own host; one on another host leaves the files to the next run there.
///
/// Two jobs that gather at the same time in the same directory need a run id each: without one
/// they are refused where that is noticed, and cannot be told apart where it is not.
/// Collective: construction, all ranks. Not for use across fork(): the child's copy does nothing.
class file_store {
 public:
  /// Throws: rendezvous_timeout_error that names the missing ranks; rendezvous_mismatch_error when
  /// world sizes differ, a rank comes twice or another job gathers there; rendezvous_error for
  /// a directory that cannot be used; usage_error for a rank that cannot be.
  file_store(std::string directory, int rank, int size, file_store_options options = {})
      : directory_(std::move(directory)),
        run_(checked(directory_, rank, size, options.run_id), options.run_id, rank, size) {
    run_.join(deadline_in(options.timeout));
  }
  file_store(const file_store&) = delete;
  file_store& operator=(const file_store&) = delete;
  ~file_store() {
    if (::getpid() == process_) run_.leave();
  }

  void set(std::string_view key, std::string_view bytes) {
    detail::check_value(place(), key, bytes);
    std::string content = std::to_string(key.size()) + '\n';
    content.append(key).append(bytes);
    if (!detail::write_file(run_.directory(), file_name(key), content, run_.unfinished_name())) {
      throw_run_is_gone(key);
    }
  }

  std::string get(std::string_view key, store_deadline deadline) {
    detail::check_key(place(), key);
    const auto start = std::chrono::steady_clock::now();
    detail::poll_pause pause;
    for (;;) {
      if (auto value = look_for(key)) return *std::move(value);
      if (!detail::file_exists(run_.directory())) throw_run_is_gone(key);
      if (std::chrono::steady_clock::now() >= deadline) {
        throw rendezvous_timeout_error("no rank has set it",
                                       {place(), std::string(key), detail::seconds_since(start)});
      }
      pause.wait();
      detail::names_in(run_.directory());  // for network file systems, see there
    }
  }

  bool contains(std::string_view key) {
    detail::check_key(place(), key);
    return look_for(key).has_value();
  }

  bool remove(std::string_view key) {
    detail::check_key(place(), key);
    const std::string path = run_.directory() + '/' + file_name(key);
    if (::unlink(path.c_str()) == 0) return true;
    if (errno != ENOENT && errno != ESTALE) detail::throw_file_error("remove", path, errno);
    return false;
  }

  std::string place() const { return "file store " + directory_; }

 private:
  static std::string checked(const std::string& directory, int rank, int size,
                             const std::string& run_id) {
    if (size < 1 || rank < 0 || rank >= size) {
      throw usage_error("zero::file_store: rank " + std::to_string(rank) +
                        " does not exist in a world of " + std::to_string(size));
    }
    if (directory.empty()) throw usage_error("zero::file_store: the directory has no name");
    detail::check_key("file store " + directory + ", run id", "id:" + run_id);
    return directory;
  }

  static std::string file_name(std::string_view key) { return "key-" + detail::name_for(key); }

  std::optional<std::string> look_for(std::string_view key) {
    constexpr std::size_t longest = store_limits::value_bytes + store_limits::key_bytes + 16;
    const std::string path = run_.directory() + '/' + file_name(key);
    auto content = detail::read_file(path, longest);
    if (!content) return std::nullopt;
    // Long keys share a file name where their hashes are equal; the key inside tells.
    const std::string head = std::to_string(key.size()) + '\n' + std::string(key);
    if (!content->starts_with(head)) {
      throw rendezvous_error(path + " holds another key; use shorter keys",
                             {place(), std::string(key), 0});
    }
    return content->substr(head.size());
  }

  [[noreturn]] void throw_run_is_gone(std::string_view key) const {
    throw rendezvous_error("the directory of this run, " + run_.directory() +
                               ", was removed while this rank still used it",
                           {place(), std::string(key), 0});
  }

  std::string directory_;
  detail::file_run run_;
  pid_t process_ = ::getpid();
};

static_assert(Store<file_store>);

}  // namespace zero
