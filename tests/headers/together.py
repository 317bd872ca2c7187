# SPDX-License-Identifier: Apache-2.0
"""together.py COMPILER INCLUDE_DIR WORK_DIR HEADER...: all headers in two files of one program.

The second file takes them in reverse order and under common macro names, so a header that leans on
its neighbours, defines a non-inline function or uses a name that users' macros take is found.
"""
import os
import re
import subprocess
import sys

# Names that C headers, curses and older numeric code define as macros. min and max are not among
# them: they are macros only on a platform that the library does not run on.
POISON = ("I", "small", "B0", "B1", "major", "minor", "linux", "unix", "PI", "ERROR", "DEBUG",
          "OVERFLOW", "OK", "TRUE", "FALSE")


def foreign_includes(include_dir, headers):
    found = set()
    for header in headers:
        with open(os.path.join(include_dir, header), encoding="utf-8") as file:
            found.update(re.findall(r"^#include <(?!zero/)([^>]+)>", file.read(), re.MULTILINE))
    return sorted(found)


def main(compiler, include_dir, work_dir, *headers):
    os.makedirs(work_dir, exist_ok=True)
    first = [f"#include <{header}>" for header in headers]
    # A macro of the poison list may break a standard header; that is not ours to judge.
    second = [f"#include <{name}>" for name in foreign_includes(include_dir, headers)]
    for name in POISON:
        second += [f"#undef {name}", f"#define {name} zero_header_uses_a_poisoned_name("]
    second += [f"#include <{header}>" for header in reversed(headers)]
    second += ["int main() {}"]

    paths = []
    for name, lines in (("in_order", first), ("poisoned", second)):
        paths.append(os.path.join(work_dir, f"{name}.cpp"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    program = os.path.join(work_dir, "together")
    command = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", include_dir,
               *paths, "-o", program]
    if subprocess.run(command).returncode != 0:
        return "the headers do not go together"
    return subprocess.run([program]).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
