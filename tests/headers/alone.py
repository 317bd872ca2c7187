# SPDX-License-Identifier: Apache-2.0
"""alone.py COMPILER INCLUDE_DIR HEADER [DIR...]: HEADER compiles by itself, twice, within its budget.

The further folders hold headers of a third party.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import layering

# Preprocessed lines without blank ones. <chrono>, <thread> and <algorithm> make up most of them, so
# the budgets leave little room for a further header of that size.
CORE_BUDGET = 50_000  # a header of the layers 0 to 2
WHOLE_BUDGET = 80_000  # zero.hpp


def weight(preprocessed):
    """Lines outside the compiler's own headers: <immintrin.h> has 40,000 lines and no substitute."""
    lines, counted = 0, True
    for line in preprocessed.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            counted = not re.search(r"/lib/(gcc|clang|llvm)", marker.group(1))
        elif counted and line.strip():
            lines += 1
    return lines


def main(compiler, include_dir, header, *third_party_dirs):
    text = f"#include <{header}>\n#include <{header}>\n"
    base = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", include_dir, "-x", "c++"]
    for folder in third_party_dirs:
        base += ["-isystem", folder]

    check = subprocess.run([*base, "-fsyntax-only", "-"], input=text, encoding="utf-8")
    if check.returncode != 0:
        return f"{header} does not compile by itself"

    budget = None
    if header == "zero/zero.hpp":
        budget = WHOLE_BUDGET
    elif layering.layer_of(header) in ("L0", "L1", "L2"):
        budget = CORE_BUDGET
    if budget:
        output = subprocess.run([*base, "-E", "-"], input=text, stdout=subprocess.PIPE,
                                encoding="utf-8")
        lines = weight(output.stdout)
        print(f"{header}: {lines} preprocessed lines, budget {budget}")
        if lines > budget:
            return f"{header} drags in {lines} lines, more than {budget}"
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
