# SPDX-License-Identifier: Apache-2.0
"""missing_instantiation.py COMPILER ARGUMENT...: without a .cu file the linker says what to add.

COMPILER ARGUMENT... compiles and links a program that lacks nothing but that file.
"""
import os
import re
import subprocess
import sys
import tempfile

TYPE = "zero::kernels::instantiate<zero::adamw, zero::bf16_mixed>"
MEMBERS = ("update_by_gradients", "update_by_sums", "write_step_message", "advance")


def problem_of(returncode, output):
    if returncode == 0:
        return "the program was linked"
    missing = re.findall(r"undefined reference to [`'\"](?:void )?(.*)", output)
    for member in MEMBERS:
        if not any(name.startswith(f"{TYPE}::{member}(") for name in missing):
            return f"no message about {TYPE}::{member}"
    # Whoever adds the file has added all.
    others = [name for name in missing if not name.startswith("zero::kernels::")]
    return f"more is missing: {others[0]}" if others else ""


def main(*command):
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([*command, "-o", os.path.join(folder, "program")],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                encoding="utf-8", env={**os.environ, "LC_ALL": "C"})
    problem = problem_of(result.returncode, result.stdout)
    if problem:
        print(result.stdout)
        return problem
    print(f"the linker asks for {TYPE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
