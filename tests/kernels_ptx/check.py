# SPDX-License-Identifier: Apache-2.0
"""check.py EXPECTATIONS PRECISION CUBIN...: the compiled kernels are those that the types ask for.

EXPECTATIONS is the program that prints them. A cubin passes when its entry points are exactly these,
and each one stays within its registers, uses no stack and no local memory, and reads and writes as
many 128-bit words as its bytes amount to.
check.py EXPECTATIONS PRECISION CUBIN --failing FAULTY: passes when the kernels of FAULTY, each
taken for the one in CUBIN that it resembles, are all reported.
check.py --same PTX PTX: passes when both files hold the same instructions.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cubin

# 65,536 registers for three blocks of 256 threads (launch.cuh), in units of eight per thread.
REGISTER_LIMIT = 65536 // (3 * 256) // 8 * 8


def demangle(names):
    output = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE,
                            encoding="utf-8", check=True).stdout
    return dict(zip(names, output.splitlines()))


def expected_kernels(program, precision):
    """{demangled name: (loads, stores)}"""
    output = subprocess.run([program, precision], stdout=subprocess.PIPE, encoding="utf-8",
                            check=True).stdout
    kernels = {}
    for line in output.splitlines():
        name, loads, stores = line.split("\t")
        kernels[name] = (loads, stores)
    return kernels


def problems_of(kernel, loads, stores):
    found = []
    if kernel.registers > REGISTER_LIMIT:
        found.append(f"{kernel.registers} registers, more than {REGISTER_LIMIT}")
    if kernel.stack_bytes:
        found.append(f"{kernel.stack_bytes} bytes of stack")
    if kernel.local:
        found.append(f"{kernel.local} accesses to local memory")
    for what, wanted, counts in (("loads", loads, kernel.loads), ("stores", stores, kernel.stores)):
        if wanted != "any" and counts[128] != int(wanted):
            found.append(f"{counts[128]} 128-bit {what}, not {wanted}")
    return found


def brief(name):
    return re.sub(r"\(.*|zero::(kernels::cuda::)?|void ", "", name)


def check(expected, path):
    kernels = cubin.read(path)
    names = demangle(list(kernels))
    problems = []
    for name in sorted(set(expected) - set(names.values())):
        problems.append(f"{path}: {brief(name)} is missing")
    print(f"{path}: {len(kernels)} kernels\nregisters  128-bit loads  stores  instructions")
    for symbol, kernel in sorted(kernels.items(), key=lambda item: names[item[0]]):
        name = names[symbol]
        print(f"{kernel.registers:9d}  {kernel.loads[128]:13d}  {kernel.stores[128]:6d}  "
              f"{kernel.instructions:12d}  {brief(name)}")
        if name not in expected:
            problems.append(f"{path}: {brief(name)} was not asked for")
            continue
        for problem in problems_of(kernel, *expected[name]):
            problems.append(f"{path}: {brief(name)}: {problem}")
    return problems


def check_failing(expected, path):
    """Every kernel of the file is held against the library's kernel of the same update."""
    update = "update_body<zero::adamw, zero::bf16_mixed, zero::bfloat16"
    loads, stores = next(value for name, value in expected.items() if update in name)
    problems = []
    for symbol, kernel in cubin.read(path).items():
        found = problems_of(kernel, loads, stores)
        print(f"{symbol}: {'; '.join(found) or 'nothing found'}")
        # The name says what is wrong with it.
        wrong = "local memory" if "local" in symbol else "128-bit loads"
        if not any(wrong in problem for problem in found):
            problems.append(f"{path}: {symbol} was not reported for its {wrong}")
    return problems if cubin.read(path) else [f"{path}: no kernel"]


def instructions_of(path):
    with open(path, encoding="utf-8") as file:
        return [line for line in file.read().splitlines() if line and not line.startswith("//")]


def main(arguments):
    if arguments[0] == "--same":
        first, second = (instructions_of(path) for path in arguments[1:])
        differing = sum(a != b for a, b in zip(first, second)) + abs(len(first) - len(second))
        print(f"{len(first)} lines, {differing} differ")
        return [] if first and differing == 0 else ["contraction changes the kernels"]
    expected = expected_kernels(*arguments[:2])
    if "--failing" in arguments:
        return check_failing(expected, arguments[-1])
    return [problem for path in arguments[2:] for problem in check(expected, path)]


if __name__ == "__main__":
    found_problems = main(sys.argv[1:])
    print("\n".join(found_problems) or "no problems")
    sys.exit(1 if found_problems else 0)
