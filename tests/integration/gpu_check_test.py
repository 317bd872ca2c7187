# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""gpu_check_test.py BIN_DIR: what scripts/gpu_check.sh says and writes, without a GPU.

The programs that it runs are replaced by small scripts in a build folder of the test.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts", "lib"))
import gpu_checks

SCRIPT = os.path.join(ROOT, "scripts", "gpu_check.sh")
BIN_DIR = sys.argv[1]
DEVICE = {"device": "a pretended GPU", "driver_version": 13000, "runtime_version": 13000}
PRETENDED = ("gpu_info", "test_gpu_kernels", "test_gpu_training", "test_gpu_nccl", "bench_gpu",
             "test_gpu_large")
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED: " + what)


def run(*arguments, environment=None):
    return subprocess.run([SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace",
                          timeout=100, check=False, env=environment)


class Build:
    """A build folder with programs that do what the test wants; its path has a blank."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpu check ")
        self.path = self.folder.name
        os.mkdir(os.path.join(self.path, "bin"))
        for name in PRETENDED:
            self.program(name, "echo all is well")
        self.program("gpu_info", "echo '%s'" % json.dumps(DEVICE))
        self.program("bench_gpu", "cat > \"$2\" <<END\n%s\nEND" % json.dumps(
            {"kernels": [{"name": "update", "fraction_of_copy": 0.95, "has_goal": True},
                         {"name": "norm", "fraction_of_copy": 0.85, "has_goal": True},
                         {"name": "fold", "fraction_of_copy": 0.1, "has_goal": False}],
             "steps": []}))

    def program(self, name, text):
        path = os.path.join(self.path, "bin", name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text + "\n")
        os.chmod(path, 0o755)

    def check(self, *arguments, environment=None):
        """The process and the JSON that it wrote."""
        result = run("--no-build", "--build-dir", self.path, *arguments, environment=environment)
        path = os.path.join(self.path, "gpu_check.json")
        report = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
            os.remove(path)
        return result, report


def entries_of(report):
    return {entry["name"]: entry for entry in report["checks"]}


def test_arguments():
    shown = run("--help")
    check(shown.returncode == 0 and "--no-build" in shown.stdout, "--help explains the options")
    for wrong in (["--nonsense"], ["--only", "nonsense"], ["--time-limit", "0"], ["--json"],
                  ["--no-build", "--build-only"]):
        result = run(*wrong)
        check(result.returncode == 2 and "usage:" in result.stderr and result.stdout == "",
              "%s is refused with the usage: %d %r" % (wrong, result.returncode, result.stderr))
    listed = run("--list")
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    check(listed.returncode == 0 and names == [
        "kernels", "cuda_threads", "nccl", "graph", "benchmarks", "large", "example", "thrust",
        "memcheck", "racecheck"], "--list names the checks: %s" % names)


def test_absent():
    build = Build()
    build.program("gpu_info", "echo 'no CUDA device: it is missing'; exit 77")
    result, report = build.check()
    check(result.returncode == 4, "without a GPU the exit code is 4, not %d" % result.returncode)
    check(result.stderr == "no CUDA device: it is missing\n", "one line: %r" % result.stderr)
    check(report["skipped"] == "no CUDA device: it is missing" and report["checks"] == [],
          "the JSON says why nothing ran")
    check(report["schema"] == "zero.gpu_check/1", "schema")

    os.remove(os.path.join(build.path, "bin", "test_gpu_nccl"))
    result, report = build.check()
    check(result.returncode == 4 and "test_gpu_nccl" in result.stderr
          and result.stderr.count("\n") == 1, "missing programs are named: %r" % result.stderr)
    check("test_gpu_nccl" in report["skipped"], "also in the JSON")
    result, _ = build.check("--only", "kernels")
    check("no CUDA device" in result.stderr, "what is not needed may be missing")

    # A PATH with the tools that the script itself needs, and no compiler.
    tools = os.path.join(build.path, "tools")
    os.mkdir(tools)
    for tool in ("bash", "env", "dirname", "git"):
        if shutil.which(tool):
            os.symlink(shutil.which(tool), os.path.join(tools, tool))
    os.symlink(sys.executable, os.path.join(tools, "python3"))
    without = dict(os.environ, PATH=tools, CUDA_HOME="/nonexistent", CUDA_PATH="/nonexistent")
    if not os.path.exists("/usr/local/cuda/bin/nvcc"):
        result = run("--build-dir", build.path, environment=without)
        check(result.returncode == 4 and result.stderr.startswith("missing: nvcc")
              and result.stderr.count("\n") == 1, "without nvcc: %r" % result.stderr)
    os.remove(os.path.join(tools, "python3"))
    result = run("--list", environment=without)
    check(result.returncode == 4 and result.stderr.startswith("missing: python3"),
          "without python3: %d %r" % (result.returncode, result.stderr))


def test_statuses():
    build = Build()
    build.program("test_gpu_nccl", "echo NCCL 2.28.9")
    build.program("test_gpu_training", "echo \"$@\"; echo two; exit 3")
    build.program("test_gpu_large", "echo too little memory; exit 77")
    build.program("train_cuda", "echo \"$@\"")
    result, report = build.check("--only", "kernels", "cuda_threads", "nccl", "benchmarks", "large",
                                 "example", "thrust")
    check(result.returncode == 1, "a failed check gives exit code 1, not %d" % result.returncode)
    entries = entries_of(report)
    statuses = {name: entry["status"] for name, entry in entries.items()}
    check(statuses == {"kernels": "passed", "cuda_threads": "failed", "nccl": "passed",
                       "benchmarks": "passed", "large": "skipped", "example": "passed",
                       "thrust": "skipped"}, "statuses: %s" % statuses)
    check(report["counts"] == {"passed": 4, "failed": 1, "skipped": 2, "not_run": 0},
          "counts: %s" % report["counts"])
    check(result.stdout.splitlines()[-1].startswith("4 passed, 1 failed, 2 skipped, 0 not run"),
          "the last line: %r" % result.stdout)
    check(entries["cuda_threads"]["reason"] == "exit code 3"
          and entries["cuda_threads"]["output"][-1] == "two", "a failure's output is kept")
    check(entries["cuda_threads"]["output"][0]
          == "--filenames-as-tags -w NoTests [#cuda_threads_test]", "one file's tests are selected")
    check(entries["large"]["reason"] == "too little memory", "the reason of what was skipped")
    check(report["device"] == DEVICE and report["nccl_version"] == "2.28.9", "device and NCCL")
    figures = entries["benchmarks"]["figures"]
    check([row["goal_met"] for row in figures["kernels"]] == [True, False, False]
          and figures["goal_met"] is False, "what misses the goal is marked, and fails nothing")
    check([line.split()[1] for line in entries["example"]["output"]] == ["1", "2", "3"],
          "the example ran at three stages: %s" % entries["example"]["output"])
    for key in ("date", "commit", "seconds", "time_limit_seconds"):
        check(key in report, "the report has " + key)

    result, report = build.check("--only", "kernels")
    check(result.returncode == 0 and list(entries_of(report)) == ["kernels"], "one check alone")
    build.program("bench_gpu", "exit 0")
    result, report = build.check("--only", "benchmarks")
    check(entries_of(report)["benchmarks"]["status"] == "failed", "benchmarks without figures fail")
    build.program("gpu_info", "echo no JSON")
    result, report = build.check("--only", "kernels")
    check(result.returncode == 1 and list(entries_of(report)) == ["info"],
          "a device that cannot be described is a failure")


def test_sanitizers():
    build = Build()
    with_tool = dict(os.environ, PATH=os.path.join(build.path, "bin") + ":" + os.environ["PATH"])
    build.program("compute-sanitizer", "echo \"$2 $ZERO_GPU_REDUCED\"; shift 4; exec \"$@\"")
    for text, status, reason in (("echo fine", "passed", None), ("exit 9", "failed", "exit code 9"),
                                 ("echo Device not supported; exit 1", "skipped",
                                  "Device not supported")):
        build.program("test_gpu_kernels", text)
        _, report = build.check("--only", "memcheck", "racecheck", environment=with_tool)
        for name, entry in entries_of(report).items():
            check((entry["status"], entry.get("reason")) == (status, reason),
                  "%s over '%s': %s" % (name, text, entry))
            if status == "failed":
                check(entry["output"] == [name + " 1"], "tool and sizes: %s" % entry["output"])


def is_alive(identity):
    try:
        with open("/proc/%s/stat" % identity, encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_time_limit():
    build = Build()
    # The sleeper is a child of the check, which has to end with it.
    build.program("test_gpu_kernels", "sleep 60 & echo sleeper $!; wait")
    result, report = build.check("--time-limit", "2")
    entries = entries_of(report)
    check(result.returncode == 1, "a check that was ended has failed")
    check(entries["kernels"]["status"] == "failed" and "time" in entries["kernels"]["reason"],
          "what was ended: %s" % entries["kernels"])
    others = [entry for name, entry in entries.items() if name != "kernels"]
    check(len(others) == 9 and all(
        entry["status"] == "not_run" and entry["reason"] == "time" for entry in others),
          "what comes after it does not run: %s" % others)
    sleeper = re.search(r"sleeper (\d+)", "\n".join(entries["kernels"]["output"]))
    check(sleeper and not is_alive(sleeper.group(1)), "what the check had started is ended, too")


def test_real_programs():
    """Where this build has the programs, they say themselves what is missing."""
    if not os.path.exists(os.path.join(BIN_DIR, "gpu_info")):
        print("gpu_info was not built: its own words are not looked at")
        return
    shown = subprocess.run([os.path.join(BIN_DIR, "gpu_info")], stdout=subprocess.PIPE,
                           encoding="utf-8", check=False)
    if shown.returncode == 77:
        check(shown.stdout.startswith("no CUDA device") and shown.stdout.count("\n") == 1,
              "gpu_info's one line: %r" % shown.stdout)
    else:
        check(json.loads(shown.stdout)["devices"] > 0, "gpu_info's JSON: %r" % shown.stdout)
    for one in gpu_checks.ALL:
        program = os.path.join(BIN_DIR, (*one.programs, "")[0])
        if isinstance(one, gpu_checks.Program) and os.path.exists(program):
            listed = subprocess.run([program, *gpu_checks.CATCH, *one.selection,
                                     "--list-test-names-only"], stdout=subprocess.PIPE,
                                    encoding="utf-8", check=False).stdout
            check("gpu " in listed, "%s selects no test" % one.name)


test_arguments()
test_absent()
test_statuses()
test_sanitizers()
test_time_limit()
test_real_programs()
print("%d failures" % len(failures))
sys.exit(1 if failures else 0)
