# SPDX-License-Identifier: Apache-2.0
# labels: slow
# timeout: 600
"""The results of the kernels do not depend on compiler, flags or instruction set.

Builds update_hash.cpp with each compiler that is installed and several sets of flags (all of them
under ZERO_FULL=1) and requires one hash. Then reads the disassembly of the AVX-512 loops, which may
not run on this CPU, and requires the arithmetic of the AVX2 loops, instruction by instruction.
"""
import collections
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
INCLUDE = os.path.join(HERE, "..", "..", "..", "include")

USUAL = {
    "g++": ["-O2 -march=x86-64-v2", "-O3 -march=native"],
    "clang++": ["-O0", "-O3 -march=native"],
}
# With wider baselines a compiler may inline the AVX2 loops into their callers.
DISASSEMBLED = "-O2 -march=x86-64-v2"
FULL = [f"{level} {march}".strip()
        for level in ("-O0", "-O1", "-O2", "-O3")
        for march in ("", "-march=x86-64-v2", "-march=x86-64-v3", "-march=native")]
FULL.append("-O3 -march=native -ffp-contract=fast")


def build(compiler, flags, program):
    command = [compiler, "-std=c++20", *flags.split(), "-I", INCLUDE,
               os.path.join(HERE, "update_hash.cpp"), "-o", program]
    subprocess.run(command, check=True)


def arithmetic(program):
    """Per instruction set and kernel: how often each kind of arithmetic appears."""
    text = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", program], check=True,
                          capture_output=True, encoding="utf-8").stdout
    found = {"avx2": {}, "avx512": {}}
    counts = None
    for line in text.splitlines():
        start = re.match(r"[0-9a-f]+ <.*run_(avx2|avx512)<(.*update_kernel<.*)>\(.*>:$", line)
        if start:
            counts = found[start[1]].setdefault(start[2], collections.Counter())
        elif line.endswith(">:"):
            counts = None
        elif counts is not None:
            kind = re.match(r"\s+[0-9a-f]+:\s+v(f|)(n|)(madd|msub|add|sub|mul|div|sqrt)\d*ps\s", line)
            if kind:
                counts["fma" if kind[1] else kind[3]] += 1
    return found


def check_arithmetic(program):
    found = arithmetic(program)
    if not found["avx2"]:
        return "no AVX2 loop was found in the disassembly"
    if set(found["avx2"]) != set(found["avx512"]):
        return "the AVX2 and AVX-512 loops are not the same kernels"
    for kernel, counts in found["avx2"].items():
        if counts != found["avx512"][kernel]:
            return f"{kernel}: AVX2 {dict(counts)}, AVX-512 {dict(found['avx512'][kernel])}"
        if counts["mul"] < 1 or counts["fma"] < 1:
            return f"{kernel}: {dict(counts)}: a product was fused or a loop was not found"
    print(f"AVX-512 has the arithmetic of AVX2 in all {len(found['avx2'])} update loops")
    return None


def main():
    if platform.machine() not in ("x86_64", "AMD64"):
        print("only for x86-64")
        return 0
    full = os.environ.get("ZERO_FULL") == "1"
    hashes = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "update_hash")
        for compiler, usual in USUAL.items():
            if shutil.which(compiler) is None:
                print(f"{compiler} is not installed")
                continue
            for flags in FULL if full else usual:
                build(compiler, flags, program)
                output = subprocess.run([program], check=True, capture_output=True,
                                        encoding="utf-8").stdout
                for line in output.splitlines():
                    path, value = line.split()
                    hashes[value].append(f"{compiler} {flags} {path}")
                    print(value, compiler, flags, path, flush=True)
                if flags == DISASSEMBLED and shutil.which("objdump"):
                    problem = check_arithmetic(program)
                    if problem:
                        return f"{compiler} {flags}: {problem}"
    if len(hashes) != 1:
        return f"{len(hashes)} different hashes"
    return 0


if __name__ == "__main__":
    sys.exit(main())
