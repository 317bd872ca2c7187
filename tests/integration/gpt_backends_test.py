# SPDX-License-Identifier: Apache-2.0
# programs: train_gpt
# labels: multi_rank
# timeout: 400
"""gpt_backends_test.py BIN_DIR: every backend trains the same parameters as ranks in threads.

50 steps, stages 0 to 3, N = 2, 3, 4; processes are started by hand (RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT) and by mpirun. Backends that this build does not have are named and left out.
"""
import ast
import os
import shutil
import socket
import subprocess
import sys
import tempfile

TRAIN_GPT = os.path.join(sys.argv[1], "train_gpt")
MODEL = ("--layers", "1", "--width", "32", "--heads", "2", "--context", "16", "--batch", "12",
         "--steps", "50", "--sample", "0", "--quiet", "--timeout", "60")
MPIRUN = ("mpirun", "--allow-run-as-root")
# What a surrounding launcher may have left behind would make these runs part of another job.
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("OMPI_", "PMI", "SLURM_", "ZERO_", "MASTER_", "RANK", "WORLD_"))}
CLEAN["OMP_NUM_THREADS"] = "2"  # a rank computes with one thread whatever this says
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED: " + what, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command, **variables):
    return subprocess.Popen(command, env={**CLEAN, **variables}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(what, processes):
    good = True
    for rank, process in enumerate(processes):
        try:
            output = process.communicate(timeout=90)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0] + "\nkilled after 90 s"
        good = good and process.returncode == 0
        check(process.returncode == 0, "%s, process %d: exit code %d: %s"
              % (what, rank, process.returncode, output[-400:]))
    return good


def read(path):
    with open(path, encoding="utf-8") as file:
        (row,) = ast.literal_eval(file.read())
    os.remove(path)
    return row


class Runs:
    def __init__(self, folder):
        self.path = os.path.join(folder, "row.json")

    def command(self, stage, backend, *more):
        return (TRAIN_GPT, *MODEL, "--stage", stage, "--backend", backend, "--json", self.path,
                *more)

    def threads(self, stage, ranks):
        what = "threads, stage %s, N = %d" % (stage, ranks)
        finish(what, [start(self.command(stage, "threads", "--ranks", str(ranks)))])
        return read(self.path)["parameters_xxh64"]

    def by_hand(self, stage, backend, ranks):
        port = str(free_port())
        return [start(self.command(stage, backend), RANK=str(rank), WORLD_SIZE=str(ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port) for rank in range(ranks)]

    def by_mpirun(self, stage, backend, ranks, *options):
        return [start((*MPIRUN, *options, "-n", str(ranks), *self.command(stage, backend)))]

    def compare(self, what, expected, backend, processes):
        if finish(what, processes):
            row = read(self.path)
            check(row["backend"] == backend, "%s: ran on %s" % (what, row["backend"]))
            check(row["parameters_xxh64"] == expected, "%s: trained other parameters" % what)
            return 1
        return 0


def is_built_in(backend):
    process = start((TRAIN_GPT, *MODEL, "--backend", backend, "--steps", "1"), RANK="0",
                    WORLD_SIZE="1")
    output = process.communicate(timeout=60)[0]
    if process.returncode == 4:
        print("left out: " + output.strip())
    return process.returncode != 4


def main():
    cores = len(os.sched_getaffinity(0))
    has_mpirun = shutil.which("mpirun") is not None
    backends = [backend for backend in ("shm", "gloo") if is_built_in(backend)]
    has_mpi = has_mpirun and is_built_in("mpi")
    equal = 0
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(folder)
        for stage in ("0", "1", "2", "3"):
            for ranks in (2, 3, 4):
                expected = runs.threads(stage, ranks)
                for backend in backends:
                    what = "%s, stage %s, N = %d" % (backend, stage, ranks)
                    equal += runs.compare(what, expected, backend,
                                          runs.by_hand(stage, backend, ranks))
                if has_mpi:
                    # Without it mpirun binds ranks to cores, and refuses more ranks than cores.
                    options = ("--oversubscribe",) if ranks > cores or stage in "13" else ()
                    what = "mpi %s, stage %s, N = %d" % (" ".join(options), stage, ranks)
                    equal += runs.compare(what, expected, "mpi",
                                          runs.by_mpirun(stage, "mpi", ranks, *options))
        if has_mpirun and "shm" in backends:
            expected = runs.threads("2", 2)
            equal += runs.compare("the bare mpirun line", expected, "shm",
                                  runs.by_mpirun("2", "auto", 2))
        if has_mpirun and "gloo" in backends:
            expected = runs.threads("3", 2)
            equal += runs.compare("gloo under mpirun", expected, "gloo",
                                  runs.by_mpirun("3", "gloo", 2))
    print("%d runs trained the parameters of ranks in threads" % equal)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
