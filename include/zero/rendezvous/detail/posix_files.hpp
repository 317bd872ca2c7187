// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <zero/detail/hash.hpp>
#include <zero/rendezvous/error.hpp>

// Small files in directories that only their owner can read. A file appears whole or not at all:
// it is written under another name and renamed, which also holds on network file systems, where
// locks often do not.

namespace zero::detail {

[[noreturn]] inline void throw_file_error(const std::string& what, const std::string& path,
                                          int reason) {
  throw rendezvous_error(
      "cannot " + what + " " + path + ": " + std::generic_category().message(reason),
      {"file store", "", 0});
}

/// 128 random bits as 32 hexadecimal digits.
inline std::string random_nonce() {
  std::array<unsigned char, 16> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw_file_error("read", "random bytes", errno);
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const unsigned byte : bytes) {
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

inline bool is_nonce(std::string_view text) noexcept {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// A file name for any bytes. Long texts are cut and end in a hash, so that the name fits a
/// directory entry; whoever reads such a file compares the text inside.
inline std::string name_for(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  constexpr std::size_t longest = 200;
  std::string name;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || c == '.';
    if (plain) {
      name += c;
    } else {
      name += '%';
      name += digits[byte >> 4U];
      name += digits[byte & 15U];
    }
  }
  if (name.size() <= longest) return name;
  return name.substr(0, longest - 20) + '~' + std::to_string(hasher{}.add(text).value());
}

/// The whole file, or nothing where there is none. Throws: rendezvous_error, also beyond `limit`.
inline std::optional<std::string> read_file(const std::string& path, std::size_t limit) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) {
    // ESTALE: a network file system's word for a file that was removed a moment ago.
    if (errno == ENOENT || errno == ESTALE) return std::nullopt;
    throw_file_error("open", path, errno);
  }
  std::string text;
  std::array<char, 16384> buffer;
  for (;;) {
    const auto count = ::read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) break;
    const int reason = count < 0 ? errno : EFBIG;
    if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
    if (count < 0 || text.size() > limit) {
      ::close(file);
      if (reason == ESTALE) return std::nullopt;
      throw_file_error("read", path, reason);
    }
  }
  ::close(file);
  return text;
}

/// Returns false where the directory does not exist (any more). `unfinished` is a name in it that
/// nobody else uses.
inline bool write_file(const std::string& directory, const std::string& name,
                       std::string_view bytes, const std::string& unfinished) {
  const std::string temporary = directory + '/' + unfinished;
  const int file =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    if (errno == ENOENT || errno == ESTALE) return false;
    throw_file_error("create", temporary, errno);
  }
  int reason = 0;
  while (!bytes.empty() && reason == 0) {
    const auto count = ::write(file, bytes.data(), bytes.size());
    if (count >= 0)
      bytes.remove_prefix(static_cast<std::size_t>(count));
    else if (errno != EINTR)
      reason = errno;
  }
  // On a network file system a full disk may show only here.
  if (::close(file) != 0 && reason == 0) reason = errno;
  if (reason == 0 && ::rename(temporary.c_str(), (directory + '/' + name).c_str()) != 0) {
    reason = errno;
  }
  if (reason == 0) return true;
  ::unlink(temporary.c_str());
  if (reason == ENOENT || reason == ESTALE) return false;
  throw_file_error("write", directory + '/' + name, reason);
}

inline bool file_exists(const std::string& path) noexcept {
  return ::access(path.c_str(), F_OK) == 0;
}

/// The names in a directory, nothing where there is none. Opening the directory also makes a
/// network file system ask its server again for names that it remembers as absent.
inline std::vector<std::string> names_in(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), &::closedir);
  if (!open) {
    if (errno == ENOENT || errno == ESTALE) return {};
    throw_file_error("list", directory, errno);
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

/// Whether `path` is there. Throws: rendezvous_error where it is not a directory of this user that
/// nobody else can write to: what others can write, others can forge.
inline bool check_own_directory(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ESTALE) return false;
    throw_file_error("use", path, errno);
  }
  const auto refuse = [&](const std::string& reason) {
    throw rendezvous_error(reason, {"file store " + path, "", 0});
  };
  if (!S_ISDIR(status.st_mode)) refuse("this is not a directory; choose another path");
  if (status.st_uid != ::geteuid()) {
    refuse("the directory belongs to user " + std::to_string(status.st_uid) +
           ", this process runs as user " + std::to_string(::geteuid()) +
           "; choose a directory of your own");
  }
  if ((status.st_mode & 022U) != 0) {
    refuse("other users can write to the directory; run chmod go-w on it");
  }
  return true;
}

/// Makes a directory with mode 0700 where none of this user's is there already.
///
/// It is marked by the sticky bit, which means nothing in a directory that one user can write to:
/// runs that end at the same time see the mark at any moment, and it goes with the directory.
inline void make_own_directory(const std::string& path) {
  if (::mkdir(path.c_str(), S_IRWXU | S_ISVTX) == 0) return;
  if (errno != EEXIST) throw_file_error("make directory", path, errno);
  check_own_directory(path);
}

/// Removes a directory that make_own_directory made, unless something is in it.
inline void remove_own_directory(const std::string& path) noexcept {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && (status.st_mode & S_ISVTX) != 0) {
    ::rmdir(path.c_str());
  }
}

/// Removes a directory of plain files. Others may do so at the same time, or still add a file.
inline void remove_directory(const std::string& path) noexcept {
  constexpr int attempts = 100;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    try {
      for (const std::string& name : names_in(path)) ::unlink((path + '/' + name).c_str());
    } catch (...) {
      return;  // it cannot be listed: what remains is found by the next run
    }
    if (::rmdir(path.c_str()) == 0 || (errno != ENOTEMPTY && errno != EEXIST)) return;
  }
}

}  // namespace zero::detail
