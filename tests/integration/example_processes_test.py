# SPDX-License-Identifier: Apache-2.0
# links: 10_processes
# labels: multi_rank
# timeout: 90
"""example_processes_test.py BIN_DIR: 10_processes as three ranks, by every launcher that is here.

By hand (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), by mpirun and by zero-run the ranks train and
rank 0 alone prints. In process namespaces of their own they cannot share memory, and say so.
"""
import os
import re
import socket
import subprocess
import sys

BIN_DIR = sys.argv[1]
EXAMPLE = os.path.join(BIN_DIR, "10_processes")
RANKS = 3
# What a surrounding launcher may have left behind would make these ranks part of another job.
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "ZERO_", "MASTER_",
                                 "RANK", "WORLD_SIZE", "LOCAL_"))}
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED: " + what, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def start(command, **variables):
    return subprocess.Popen(command, env={**CLEAN, **variables}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_by_hand(*prefix):
    port = free_port()
    return [start((*prefix, EXAMPLE), RANK=str(rank), WORLD_SIZE=str(RANKS),
                  MASTER_ADDR="127.0.0.1", MASTER_PORT=port) for rank in range(RANKS)]


def ends_of(processes):
    """Exit codes, and what all of them wrote together."""
    codes, outputs, errors = [], "", ""
    for process in processes:
        try:
            output, error = process.communicate(timeout=45)
        except subprocess.TimeoutExpired:
            process.kill()
            output, error = process.communicate()
        codes.append(process.returncode)
        outputs += output
        errors += error
    return codes, outputs, errors


def check_training(launcher, processes):
    codes, output, errors = ends_of(processes)
    what = "%s: exit codes %s, output '%s', errors '%s'" % (launcher, codes, output, errors[-400:])
    check(not any(codes), what)
    check(re.fullmatch(r"3 rank\(s\), launcher \w+: weights are 2 to within \S+\n", output), what)
    print(launcher + ": " + output.strip(), flush=True)


def can_run(*command):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False, timeout=20).returncode == 0
    except OSError:
        return False


def check_ranks_that_share_no_memory():
    own_processes = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if not can_run(*own_processes, "true"):
        print("left out: process namespaces cannot be made here")
        return
    codes, output, errors = ends_of(start_by_hand(*own_processes))
    what = "namespaces: exit codes %s, output '%s', errors '%s'" % (codes, output, errors)
    check(codes == [1] * RANKS and output == "", what)
    check(errors.startswith("the 3 ranks cannot share memory") and errors.count("\n") == 1, what)
    check("zero::gloo_communicator" in errors, what)


def main():
    check_training("by hand", start_by_hand())
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS))
    if can_run(*mpirun, "true"):
        check_training("mpirun", [start((*mpirun, EXAMPLE))])
    else:
        print("left out: there is no mpirun")
    zero_run = os.path.join(BIN_DIR, "zero-run")
    if os.path.exists(zero_run):
        check_training("zero-run", [start((zero_run, "-n", str(RANKS), EXAMPLE))])
    else:
        print("left out: zero-run is not built")
    check_ranks_that_share_no_memory()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
