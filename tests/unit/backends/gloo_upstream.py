# SPDX-License-Identifier: Apache-2.0
"""The Gloo backend compiles against the interface that Gloo has had since 2025-04.

Compiled, not run: distributions have the one from before. It fails when the choice between the two
is not made, too: then a store is passed by reference, which the new interface does not take.
"""
import os
import shutil
import subprocess
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MOCK = os.path.join(TESTS, "support", "gloo_mock")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion",
            "-Werror"]


def main():
    compilers = [name for name in ("g++", "clang++") if shutil.which(name)]
    if not compilers:
        print("no compiler was found")
        return 1
    failures = 0
    for compiler in compilers:
        command = [compiler, "-std=c++20", "-fsyntax-only", *WARNINGS, "-I", MOCK,
                   "-I", os.path.join(TESTS, "..", "include"), os.path.join(MOCK, "upstream.cpp")]
        failed = subprocess.run(command).returncode != 0
        print(f"{compiler}: {'does not compile' if failed else 'compiles'}")
        failures += failed
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
