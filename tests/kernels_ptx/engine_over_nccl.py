# SPDX-License-Identifier: Apache-2.0
"""engine_over_nccl.py PROGRAM: trains where there is a GPU, and says in one line where there is none.

PROGRAM is engine_over_nccl.cpp with the CUDA runtime and NCCL. Without a GPU it starts all the same,
and what it does without asking for one first is refused with a typed error.
engine_over_nccl.py --simulated PROGRAM: it trains on the simulated device, and on that alone.
"""
import re
import subprocess
import sys

NO_DEVICE = (r"no CUDA device: "
             r"(cudaGetDeviceCount: cudaError\w+ \(\d+\), .+|the runtime counts 0 of them)")


def run(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            encoding="utf-8")
    print(f"exit code {result.returncode}: {result.stdout}", end="")
    return result.returncode, result.stdout


def check_simulated(program):
    dynamic = subprocess.run(["readelf", "--dynamic", program], stdout=subprocess.PIPE,
                             encoding="utf-8", check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    print(f"needs {' '.join(needed)}")
    if not needed or any(re.match(r"libcuda|libnccl", name) for name in needed):
        return "the program needs what the simulated device stands for"
    code, _ = run(program)
    return f"exit code {code}" if code else 0


def check(program):
    code, output = run(program)
    if code == 0:
        return 0
    if code != 3 or not re.fullmatch(NO_DEVICE + "\n", output):
        return "neither trained nor said in one line that there is no device"
    # Any error of cudaGetDeviceCount means that; so the constructor of the communicator says.
    code, refused = run(program, "1")
    if code != 4 or refused != "zero::nccl_error 1: zero::nccl_communicator: " + output:
        return "the communicator did not refuse with the same line"
    print("there is no GPU: nothing was trained")
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--simulated":
        sys.exit(check_simulated(*sys.argv[2:]))
    sys.exit(check(*sys.argv[1:]))
