# SPDX-License-Identifier: Apache-2.0
"""missing_instantiation.py COMPILER INCLUDE_DIR: without a .cu file the linker says what to add."""
import os
import re
import subprocess
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
TYPE = "zero::kernels::instantiate<zero::adamw, zero::bf16_mixed>"


def main(compiler, include_dir):
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, "-std=c++20", "-I", include_dir,
                   os.path.join(FOLDER, "uses_kernels.cpp"), "-o", os.path.join(folder, "program")]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                encoding="utf-8", env={**os.environ, "LC_ALL": "C"})
    wanted = re.findall(r"undefined reference to [`'\"]?(?:void )?(\S+<[^>]*>::\w+)", result.stdout)
    for member in ("update_by_gradients", "update_by_sums"):
        if result.returncode == 0 or f"{TYPE}::{member}" not in wanted:
            print(result.stdout)
            return f"no message about {TYPE}::{member}"
    print(f"the linker asks for {TYPE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
