// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace zero::test {

/// A folder of this test alone, with mode 0700; removed at the end with whatever is in it.
class temporary_folder {
 public:
  temporary_folder() {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() { remove(path_); }

  const std::string& path() const noexcept { return path_; }
  std::string operator/(const std::string& name) const { return path_ + '/' + name; }

  /// Everything below the folder, as paths relative to it.
  std::vector<std::string> files() const {
    std::vector<std::string> found;
    list(path_, "", found);
    return found;
  }

 private:
  static std::vector<std::string> names_in(const std::string& path) {
    std::vector<std::string> names;
    DIR* open = ::opendir(path.c_str());
    if (open == nullptr) return names;
    while (const dirent* entry = ::readdir(open)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    ::closedir(open);
    return names;
  }

  static void list(const std::string& path, const std::string& prefix,
                   std::vector<std::string>& found) {
    for (const std::string& name : names_in(path)) {
      found.push_back(prefix + name);
      list(path + '/' + name, prefix + name + '/', found);
    }
  }

  static void remove(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return;
    if (!S_ISDIR(status.st_mode)) {
      ::unlink(path.c_str());
      return;
    }
    for (const std::string& name : names_in(path)) remove(path + '/' + name);
    ::rmdir(path.c_str());
  }

  std::string path_ = "/tmp/zero_test_XXXXXX";
};

}  // namespace zero::test
