// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace CLI {
class App;
}

// How every program of this project ends and where it writes: tables go to stdout, progress and
// errors to stderr.
namespace example {

/// The exit codes of all programs.
enum class exit_code : int {
  success = 0,
  check_failed = 1,  ///< the program compared something, and it was not as it should be
  usage = 2,         ///< options or input files that cannot be used
  error = 3,         ///< a zero::error, or anything else that went wrong on the way
  absent = 4,        ///< something needed is not there: a data file, say
};

/// Options or an input that cannot be used: exit code 2. The text is one line.
class usage_failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Something needed is not there: exit code 4. The text is one line.
class absent_failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Parses the command line, runs `body` and turns whatever is thrown into an exit code and one
/// line on stderr. CLI11's own codes become 2; --help is a success. zero::usage_error counts as
/// usage too: here the caller's arguments came from the command line.
int run_program(CLI::App& app, int argc, const char* const* argv,
                const std::function<exit_code()>& body);

/// Writes a whole file or none: to `path`.tmp first, which is then renamed.
/// Throws: std::runtime_error with the path and the system's reason.
void write_file(const std::string& path, const std::string& text);

}  // namespace example
