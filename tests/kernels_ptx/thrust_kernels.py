# SPDX-License-Identifier: Apache-2.0
"""thrust_kernels.py CUBIN: it holds thrust_update for every optimizer, precision and gradient type.

None of them uses a stack or local memory. How wide their accesses are is Thrust's affair.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cubin

OPTIMIZERS = ("adamw", "adam", "sgd", "lion")
# gradient_type, and accumulation_type where that is another.
GRADIENTS = {"fp32": ("float",), "bf16_mixed": ("zero::bfloat16", "float"),
             "fp16_mixed": ("zero::float16", "float"), "bf16_mixed_fp32_gradients": ("float",),
             "bf16_remainder": ("zero::bfloat16", "float")}
UPDATE = re.compile(r"thrust_element_update<zero::(\w+), zero::(\w+), ([\w:]+) ?>")


def main(path):
    kernels = cubin.read(path)
    names = subprocess.run(["c++filt"], input="\n".join(kernels), stdout=subprocess.PIPE,
                           encoding="utf-8", check=True).stdout.splitlines()
    wanted = {(optimizer, precision, gradient) for optimizer in OPTIMIZERS
              for precision, gradients in GRADIENTS.items() for gradient in gradients}
    problems = []
    print("registers  instructions  widest access")
    for name, kernel in zip(names, kernels.values()):
        found = UPDATE.search(name)
        if not found:
            continue
        update = found.groups()
        widest = max([*kernel.loads, *kernel.stores], default=0)
        print(f"{kernel.registers:9d}  {kernel.instructions:12d}  {widest:9d} bit  "
              + " ".join(update))
        if update not in wanted:
            problems.append(f"{' '.join(update)} was not asked for, or is there twice")
        wanted.discard(update)
        if kernel.stack_bytes or kernel.local:
            problems.append(f"{' '.join(update)}: {kernel.stack_bytes} bytes of stack, "
                            f"{kernel.local} accesses to local memory")
    return problems + [f"{' '.join(update)} is missing" for update in sorted(wanted)]


if __name__ == "__main__":
    found_problems = main(sys.argv[1])
    print("\n".join(found_problems) or "no problems")
    sys.exit(1 if found_problems else 0)
