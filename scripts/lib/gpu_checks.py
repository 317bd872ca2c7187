# SPDX-License-Identifier: Apache-2.0
"""The checks of scripts/gpu_check.sh, in the order in which they run.

A check's run(run) returns (status, seconds, reason, output, figures) with status "passed", "failed"
or "skipped".
"""
import json
import os
import re

import gpu_programs

# Of a device-to-device copy of as many bytes in the same run.
GOAL = 0.9


def outcome_of(result, figures=None):
    if result.is_good():
        return ("passed", result.seconds, None, None, figures)
    if result.code == gpu_programs.SKIPPED:
        return ("skipped", result.seconds, result.last_line(), None, None)
    return ("failed", result.seconds, result.problem(), result.last_lines(), None)


# Catch: a selection that holds no test is an error.
CATCH = ("--filenames-as-tags", "-w", "NoTests")


class Program:
    """A program of tests/gpu, or one file's tests in it."""
    optional = ()

    def __init__(self, name, what, program, file=None):
        self.name = name
        self.what = what
        self.programs = (program,)
        self.selection = ("[#%s]" % file,) if file else ()

    def run(self, run):
        result = run.execute(self.name,
                             [run.program(self.programs[0]), *CATCH, *self.selection])
        return outcome_of(result)


class Nccl(Program):
    """Its program also says which NCCL it is."""

    def run(self, run):
        found = super().run(run)
        log = os.path.join(run.logs, self.name + ".log")
        with open(log, encoding="utf-8", errors="replace") as file:
            version = re.search(r"^NCCL (\d+\.\d+\.\d+)$", file.read(), re.MULTILINE)
        if version:
            run.report["nccl_version"] = version.group(1)
        return found


class Benchmarks:
    """What is slower than the goal is marked, and fails nothing."""
    name = "benchmarks"
    what = "update, norm, casts, fold against a device-to-device copy; seconds per step by stage"
    programs = ("bench_gpu",)
    optional = ()

    def run(self, run):
        file = os.path.join(run.logs, "benchmarks.json")
        if os.path.exists(file):
            os.remove(file)
        result = run.execute(self.name, [run.program("bench_gpu"), "--json", file])
        if not result.is_good():
            return outcome_of(result)
        try:
            figures = self.figures_in(file)
        except (OSError, ValueError, KeyError) as problem:
            return ("failed", result.seconds, "no figures: %r" % problem, result.last_lines(), None)
        return outcome_of(result, figures)

    @staticmethod
    def figures_in(file):
        with open(file, encoding="utf-8") as text:
            figures = json.load(text)
        for row in figures["kernels"]:
            row["goal_met"] = row["fraction_of_copy"] >= GOAL
        figures["goal"] = GOAL
        figures["goal_met"] = all(row["goal_met"] for row in figures["kernels"] if row["has_goal"])
        return figures


class Sanitizer:
    """A tool of compute-sanitizer over the tests of the kernels, at few sizes."""
    programs = ("test_gpu_kernels",)
    optional = ()

    def __init__(self, tool, what):
        self.name = tool
        self.what = what

    def run(self, run):
        sanitizer = gpu_programs.find_tool("compute-sanitizer")
        if sanitizer is None:
            return ("skipped", 0, "compute-sanitizer is not installed", None, None)
        result = run.execute(self.name, [sanitizer, "--tool", self.name, "--error-exitcode", "9",
                                         run.program("test_gpu_kernels"), *CATCH],
                             {"ZERO_GPU_REDUCED": "1"})
        if not result.is_good():
            unsupported = [line for line in result.lines() if "Device not supported" in line]
            if unsupported:
                return ("skipped", result.seconds, unsupported[0].strip(), None, None)
        return outcome_of(result)


class Optional:
    """Programs that not every tree or build has; each call has to return 0."""
    programs = ()

    def __init__(self, name, what, program, calls):
        self.name = name
        self.what = what
        self.optional = (program,)
        self.calls = calls

    def run(self, run):
        program = run.program(self.optional[0])
        if not os.path.exists(program):
            return ("skipped", 0, "%s was not built" % self.optional[0], None, None)
        seconds = 0.0
        last_lines = []
        for i, arguments in enumerate(self.calls(run)):
            if run.seconds_left() <= 0:
                return ("failed", seconds, "ended after %d calls: time" % i, None, None)
            result = run.execute("%s_%d" % (self.name, i), [program, *arguments])
            seconds += result.seconds
            result.seconds = seconds
            if not result.is_good():
                return outcome_of(result)
            last_lines.append(result.last_line())
        return ("passed", seconds, None, last_lines, None)


def example_calls(run):
    del run
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    data = os.path.join(root, "LICENSE")
    return [("--stage", stage, "--ranks", "2", "--steps", "200", data) for stage in "123"]


ALL = (
    Program("kernels", "every kernel against the CPU, bit for bit", "test_gpu_kernels"),
    Program("cuda_threads", "training on 2, 4 and 8 ranks against threads, bit for bit",
            "test_gpu_training", "cuda_threads_test"),
    Nccl("nccl", "NCCL with one rank: collectives, graphs, aborts", "test_gpu_nccl"),
    Program("graph", "a captured step against an eager one, bit for bit", "test_gpu_training",
            "graph_test"),
    Benchmarks(),
    Program("large", "2^31 + 64 elements", "test_gpu_large"),
    Optional("example", "train_cuda, stages 1 to 3", "train_cuda", example_calls),
    Optional("thrust", "the adapter's update against the CPU, bit for bit",
             "zero_thrust_on_device", lambda run: [()]),
    Sanitizer("memcheck", "compute-sanitizer over the kernels: accesses out of bounds"),
    Sanitizer("racecheck", "compute-sanitizer over the kernels: races in shared memory"),
)
