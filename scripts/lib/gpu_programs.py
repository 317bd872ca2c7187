# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu_check.sh starts: compilers and checks, with a deadline and a log."""
import os
import re
import shutil
import signal
import subprocess
import time

# What a program returns that has found no GPU, or too small a one.
SKIPPED = 77
LAST_LINES = 25


class Result:
    """How a command ended. `code` is None where it was ended at the deadline."""

    def __init__(self, code, seconds, log):
        self.code = code
        self.seconds = seconds
        self.log = log

    def is_good(self):
        return self.code == 0

    def lines(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return [line.rstrip() for line in file if line.strip()]

    def last_lines(self):
        return self.lines()[-LAST_LINES:]

    def last_line(self):
        return (self.lines() or [""])[-1].strip()

    def problem(self):
        """In one line."""
        if self.code is None:
            return "ended after %.0f s: time" % self.seconds
        if self.code < 0:
            return "signal %d" % -self.code
        return "exit code %d" % self.code


def end_group(process):
    """Ends a process that execute() started, and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def toolkits():
    return [os.environ[variable] for variable in ("CUDA_HOME", "CUDA_PATH")
            if variable in os.environ] + ["/usr/local/cuda"]


def with_libraries(environment):
    """The environment, with the toolkit's libraries where nothing else names a folder for them."""
    folders = [folder for prefix in toolkits() for folder in
               (os.path.join(prefix, "lib64"), os.path.join(prefix, "lib")) if os.path.isdir(folder)]
    named = environment.get("LD_LIBRARY_PATH")
    return dict(environment, LD_LIBRARY_PATH=":".join(([named] if named else []) + folders))


def execute(command, log, seconds, environment=None):
    """Runs a command for at most `seconds`, in a process group of its own."""
    begin = time.monotonic()
    environment = with_libraries(dict(os.environ, **(environment or {})))
    with open(log, "wb") as output:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True,
                                       env=environment)
        except OSError as problem:
            output.write(("%s: %s\n" % (command[0], problem.strerror)).encode())
            return Result(127, 0.0, log)
        try:
            code = process.wait(timeout=max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(process)
    return Result(code, time.monotonic() - begin, log)


def find_tool(name):
    """On PATH, or where a toolkit usually is."""
    path = os.pathsep.join(os.path.join(prefix, "bin") for prefix in toolkits())
    return shutil.which(name) or shutil.which(name, path=path)


def find_nvcc():
    return find_tool("nvcc")


def configure_command(root, build_dir, architectures):
    command = ["cmake", "-S", root, "-B", build_dir, "-DCMAKE_BUILD_TYPE=None",
               "-DCMAKE_CXX_FLAGS=-O2", "-DZERO_ENABLE_CUDA=ON", "-DZERO_TEST_GPU_ALL=ON",
               "-DZERO_TEST_GPU_SIMULATED=OFF", "-DZERO_BUILD_PROGRAMS=OFF",
               "-DZERO_TEST_MATCH=^gpu/", "-DCUDAToolkit_ROOT="
               + os.path.dirname(os.path.dirname(os.path.realpath(find_nvcc()))),
               "-DZERO_CUDA_ARCHITECTURES=" + architectures.replace(",", ";")]
    is_configured = os.path.exists(os.path.join(build_dir, "CMakeCache.txt"))
    return command + (["-G", "Ninja"] if shutil.which("ninja") and not is_configured else [])


def build_command(build_dir, targets):
    """One file that does not compile does not stop the others."""
    is_ninja = os.path.exists(os.path.join(build_dir, "build.ninja"))
    return ["cmake", "--build", build_dir, "--parallel", str(len(os.sched_getaffinity(0))), "--target",
            *targets, "--", *(["-k", "0"] if is_ninja else ["-k"])]


def existing_targets(build_dir, names):
    """Those of the names that the build folder has a target for."""
    known = subprocess.run(["cmake", "--build", build_dir, "--target", "help"],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
                           encoding="utf-8", errors="replace").stdout
    return [name for name in names
            if re.search(r"(^|\s|/)%s(:|\s|$)" % re.escape(name), known, re.MULTILINE)]


def commit_of(root):
    """The commit of the sources, with a + where they were changed since; None where git is not."""
    def git(*arguments):
        return subprocess.run(["git", "-C", root, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=True,
                              encoding="utf-8").stdout.strip()
    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
