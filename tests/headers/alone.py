# SPDX-License-Identifier: Apache-2.0
"""alone.py COMPILER INCLUDE_DIR HEADER: HEADER compiles by itself, twice, within its budget."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import layering

CORE_BUDGET = 45_000  # preprocessed lines, without blank ones, of a header of the layers 0 to 2
WHOLE_BUDGET = 70_000  # of zero.hpp


def main(compiler, include_dir, header):
    text = f"#include <{header}>\n#include <{header}>\n"
    base = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", include_dir, "-x", "c++"]

    check = subprocess.run([*base, "-fsyntax-only", "-"], input=text, encoding="utf-8")
    if check.returncode != 0:
        return f"{header} does not compile by itself"

    budget = None
    if header == "zero/zero.hpp":
        budget = WHOLE_BUDGET
    elif layering.layer_of(header) in ("L0", "L1", "L2"):
        budget = CORE_BUDGET
    if budget:
        output = subprocess.run([*base, "-E", "-P", "-"], input=text.encode(), capture_output=True)
        lines = output.stdout.count(b"\n")
        print(f"{header}: {lines} preprocessed lines, budget {budget}")
        if lines > budget:
            return f"{header} drags in {lines} lines, more than {budget}"
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
