// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <new>
#include <stdexcept>
#include <system_error>

#include <zero/error.hpp>

namespace example {
namespace {

int finish(const CLI::App& app, exit_code code, const char* text) {
  std::cout.flush();
  std::cerr << app.get_name() << ": " << text << '\n';
  return static_cast<int>(code);
}

int run_body(const CLI::App& app, const std::function<exit_code()>& body) {
  try {
    const exit_code code = body();
    // A full disk must not look like success.
    if (!std::cout.flush()) throw std::runtime_error("cannot write to standard output");
    return static_cast<int>(code);
  } catch (const usage_failure& failure) {
    return finish(app, exit_code::usage, failure.what());
  } catch (const zero::usage_error& failure) {
    return finish(app, exit_code::usage, failure.what());
  } catch (const absent_failure& failure) {
    return finish(app, exit_code::absent, failure.what());
  } catch (const std::bad_alloc&) {
    return finish(app, exit_code::error, "out of memory");
  } catch (const std::exception& failure) {
    return finish(app, exit_code::error, failure.what());
  }
}

[[noreturn]] void fail_to_write(const std::string& path) {
  throw std::runtime_error("cannot write " + path + ": " + std::generic_category().message(errno));
}

}  // namespace

int run_program(CLI::App& app, int argc, const char* const* argv,
                const std::function<exit_code()>& body) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    app.exit(success);  // prints the help
    return static_cast<int>(exit_code::success);
  } catch (const CLI::ParseError& failure) {
    app.exit(failure);
    return static_cast<int>(exit_code::usage);
  }
  return run_body(app, body);
}

void write_file(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".tmp";
  std::ofstream file(unfinished, std::ios::binary);
  if (!file) fail_to_write(unfinished);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) {
    const int reason = errno;
    std::remove(unfinished.c_str());
    errno = reason;
    fail_to_write(unfinished);
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    std::remove(unfinished.c_str());
    errno = reason;
    fail_to_write(path);
  }
}

}  // namespace example
