# SPDX-License-Identifier: Apache-2.0
"""layering.py ROOT | --self-test: the #include lines and the form of every source file.

Prints one line per problem.
"""
import os
import re
import sys

LINE_CAP = 500
SPDX = "// SPDX-License-Identifier: Apache-2.0"

TOP_LEVEL = {
    "L0": ("config", "version", "fwd", "error"),
    "L1": ("stage", "precision", "communicator", "optimizer", "range", "loss_scale"),
    "L2": ("layout", "partition", "plan", "estimate", "ledger", "memory", "model_state",
           "fingerprint", "engine_options"),
    "L4": ("engine", "scopes"),
    "L5": ("zero", "cuda"),
    "L6": ("checkpoint",),
}
FOLDERS = {"numeric": "L0", "optimizers": "L1", "kernels": "kernels", "backends": "backends",
           "rendezvous": "rendezvous", "cuda": "cuda", "adapters": "L6", "detail": "detail"}
BELOW = {
    "L0": {"L0"},
    "L1": {"L0", "L1"},
    "L2": {"L0", "L1", "L2"},
    "kernels": {"L0", "L1", "kernels"},
    "backends": {"L0", "L1"},
    "rendezvous": {"L0", "L1", "rendezvous"},
    # Handles of the CUDA runtime, and its memory as a memory_resource.
    "cuda": {"L0", "L1", "L2", "cuda"},
    "L4": {"L0", "L1", "L2", "L4"},
    "L5": {"L0", "L1", "L2", "kernels", "L4"},
    "L6": {"L0", "L1", "L2", "kernels", "backends", "rendezvous", "cuda", "L4", "L5", "L6"},
}
HEAVY = {"iostream", "format", "regex", "random", "filesystem"}
CUDA_BACKENDS = {"nccl", "cuda_threads"}
DECORATORS = {"metered", "delaying", "faulty", "hybrid", "overlapped"}
# These measure; a figure they took from the formulas would prove nothing.
MEASURING = ("zero/backends/metered.hpp", "zero/ledger.hpp", "zero/memory.hpp")
PREDICTING = ("zero/estimate.hpp", "zero/plan.hpp")


def layer_of(header):
    """The layer of zero/…, or None. A folder named after a top-level header shares its layer."""
    if not header.startswith("zero/"):
        return None
    parts = header.split("/")[1:]
    name = re.sub(r"\.(hpp|cuh)$", "", parts[0])
    if len(parts) > 1 and name in FOLDERS:
        return FOLDERS[name]
    return next((layer for layer, names in TOP_LEVEL.items() if name in names), None)


def includes_of(text):
    return re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', text, re.MULTILINE)


def through_detail(header, headers, seen=None):
    """What header includes, with each detail/ header replaced by what that one includes."""
    seen = set() if seen is None else seen
    for _, name in includes_of(headers[header]):
        if name in seen:
            continue
        seen.add(name)
        if name in headers and layer_of(name) == "detail":
            through_detail(name, headers, seen)
    return {name for name in seen if layer_of(name) != "detail"}


def closure(header, headers):
    seen, open_ = set(), [header]
    while open_:
        for _, name in includes_of(headers.get(open_.pop(), "")):
            if name not in seen:
                seen.add(name)
                open_.append(name)
    return seen


def stem_of(name):
    """threads of zero/backends/threads.hpp and of zero/backends/threads/barrier.hpp."""
    return re.sub(r"\.(hpp|cuh)$", "", name.split("/")[2])


def may_include(header, name):
    layer, other = layer_of(header), layer_of(name)
    if other in BELOW[layer]:
        return True
    if layer == "backends":
        if other == "backends":
            return stem_of(header) == stem_of(name)
        if other == "cuda":
            return stem_of(header) in CUDA_BACKENDS
        # It cuts shards among replicas and rounds sums, which is done in one place each.
        if stem_of(header) == "hybrid":
            return name in ("zero/partition.hpp", "zero/kernels/cast.hpp")
        is_decorator = stem_of(header) in DECORATORS
        return not is_decorator and name in ("zero/kernels/fold.hpp", "zero/rendezvous/host.hpp",
                                             "zero/rendezvous/interfaces.hpp",
                                             "zero/rendezvous/store.hpp")
    if layer == "L4":
        return re.fullmatch(r"zero/kernels/[a-z_0-9]+\.hpp", name) is not None
    if layer == "L5":
        # The engine on devices, for programs that have the CUDA runtime.
        if header == "zero/cuda.hpp" and other == "cuda":
            return True
        return name in ("zero/backends/threads.hpp", "zero/backends/self.hpp")
    return False


def may_include_foreign(header, name):
    """name is no header of the library: the standard library's have neither a dot nor a slash."""
    layer = layer_of(header)
    if re.fullmatch(r"[a-z_0-9]+", name):
        return layer != "L0" or name not in HEAVY
    if layer == "backends":
        return stem_of(header) not in DECORATORS | {"threads", "self"}
    if layer == "kernels":
        return name in ("immintrin.h", "cpuid.h") or header.startswith("zero/kernels/cuda/")
    if header == "zero/cuda.hpp":
        return name == "cuda_runtime_api.h"
    return layer in ("rendezvous", "cuda", "L6") and header != "zero/adapters/any_communicator.hpp"


def check_layers(headers):
    for header in sorted(headers):
        layer = layer_of(header)
        if layer is None:
            yield f"{header}: has no layer (the table stands in tests/layering.py)"
            continue
        for quote, name in includes_of(headers[header]):
            if quote == '"':
                yield f'{header}: write #include <{name}> with the path below include/'
            if name.startswith("zero/") and name not in headers:
                yield f"{header}: includes <{name}>, which does not exist"
            if name.endswith(".cuh") and not header.endswith(".cuh"):
                yield f"{header}: only .cuh and .cu files include <{name}>"
        if layer == "detail":
            continue
        for name in sorted(through_detail(header, headers)):
            if not name.startswith("zero/"):
                if not may_include_foreign(header, name):
                    yield f"{header}: <{name}> is not for layer {layer}"
            elif layer_of(name) and not may_include(header, name):
                yield f"{header}: layer {layer} must not include <{name}> (layer {layer_of(name)})"
    for header in MEASURING:
        for name in sorted(closure(header, headers).intersection(PREDICTING)):
            yield f"{header}: measures, so it must not reach <{name}>"


def check_form(path, text):
    lines = text.splitlines()
    if not lines or lines[0] != SPDX:
        yield f"{path}: the first line is not {SPDX}"
    if path.endswith((".hpp", ".cuh")) and "#pragma once" not in lines[:3]:
        yield f"{path}: no #pragma once on the second or third line"
    if len(lines) > LINE_CAP:
        yield f"{path}: {len(lines)} lines, more than {LINE_CAP}"


def read_sources(root):
    sources = {}
    for top in ("include", "tests", "examples", "bench"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith((".hpp", ".cpp", ".cuh", ".cu")):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        sources[os.path.relpath(path, root)] = file.read()
    return sources


def check(sources):
    headers = {path[len("include/"):]: text for path, text in sources.items()
               if path.startswith("include/zero/")}
    problems = list(check_layers(headers))
    for path in sorted(sources):
        problems += check_form(path, sources[path])
    return problems


def self_test():
    """Each entry is one violation that must be found and a similar text that must pass."""
    def header(*includes):
        return "\n".join([SPDX, "#pragma once", *(f"#include {name}" for name in includes), ""])

    base = {f"include/zero/{name}.hpp": header() for name in (
        "error", "stage", "plan", "estimate", "ledger", "engine", "detail/check", "kernels/fold",
        "kernels/update", "kernels/cpu/lanes", "backends/threads", "backends/metered",
        "backends/gloo")}
    cases = [
        ("error", ["<zero/stage.hpp>"], []),
        ("error", ["<random>"], ["<string>"]),
        ("stage", ["<zero/plan.hpp>"], ["<zero/error.hpp>"]),
        ("stage", ["<mpi.h>"], ["<concepts>"]),
        ("plan", ["<zero/engine.hpp>"], ["<zero/estimate.hpp>"]),
        ("kernels/update", ["<zero/plan.hpp>"], ["<zero/kernels/cpu/lanes.hpp>", "<immintrin.h>"]),
        ("backends/gloo", ["<zero/backends/threads.hpp>"], ["<gloo/context.h>"]),
        ("backends/threads", ["<zero/kernels/update.hpp>"], ["<zero/kernels/fold.hpp>"]),
        ("backends/metered", ["<zero/kernels/fold.hpp>"], ["<zero/stage.hpp>"]),
        ("ledger", ["<zero/plan.hpp>"], ["<zero/stage.hpp>"]),
        ("engine", ["<zero/backends/threads.hpp>"], ["<zero/kernels/fold.hpp>"]),
        ("engine", ["<zero/kernels/cpu/lanes.hpp>"], ["<zero/kernels/update.hpp>"]),
        ("engine", ['"plan.hpp"'], ["<zero/plan.hpp>"]),
        ("engine", ["<zero/absent.hpp>"], ["<zero/error.hpp>"]),
        ("unheard_of", [], None),
    ]
    failures = []
    for name, wrong, right in cases:
        path = f"include/zero/{name}.hpp"
        if not check({**base, path: header(*wrong)}):
            failures.append(f"not found: {name} including {wrong}")
        if right is not None:
            failures += check({**base, path: header(*right)})

    through = {**base, "include/zero/detail/check.hpp": header("<zero/engine.hpp>"),
               "include/zero/stage.hpp": header("<zero/detail/check.hpp>")}
    forms = [{**base, "include/zero/error.hpp": "#pragma once\n"},
             {**base, "include/zero/error.hpp": f"{SPDX}\n"},
             {**base, "tests/long.cpp": f"{SPDX}\n" + "\n" * LINE_CAP}]
    for sources in (through, *forms):
        if not check(sources):
            failures.append("a violation of layer through detail/, or of form, was not found")
    return failures + check(base)


if __name__ == "__main__":
    found = self_test() if sys.argv[1] == "--self-test" else check(read_sources(sys.argv[1]))
    print("\n".join(found) if found else "no problems")
    sys.exit(1 if found else 0)
