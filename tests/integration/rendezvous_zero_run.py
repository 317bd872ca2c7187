# SPDX-License-Identifier: Apache-2.0
# labels: multi_rank fault
# programs: zero-run
# timeout: 90
"""rendezvous_zero_run.py BIN_DIR: runs the real zero-run; its ranks are small shell scripts.
"""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.join(sys.argv[1], "zero-run")
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED: " + what)


def run(*arguments, environment=None):
    return subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True, timeout=60, check=False,
                          env=environment)


def start(*arguments):
    return subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL, text=True)


def wait_until(condition, what):
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            check(False, "never: " + what)
            return
        time.sleep(0.005)


def runs(pid):
    """Whether the process runs; one that nobody has reaped yet does not."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def written_numbers(folder, count):
    """The process ids that ranks wrote to files, one each."""
    def complete():
        names = [name for name in os.listdir(folder) if name.isdigit()]
        return len(names) == count
    wait_until(complete, "%d ranks started" % count)
    return [int(name) for name in os.listdir(folder) if name.isdigit()]


def variables_are_torchruns():
    stale = dict(os.environ, RANK="9", ZERO_RANK="9", ZERO_WORLD_SIZE="10",
                 TORCHELASTIC_USE_AGENT_STORE="True", MASTER_PORT="1")
    names = ("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT ZERO_RANK "
             "TORCHELASTIC_USE_AGENT_STORE ZERO_STORE_FD").split()
    script = "echo " + ",".join("$" + name for name in names)
    for ranks in (1, 2, 4):
        result = run("-n", str(ranks), "sh", "-c", script, environment=stale)
        check(result.returncode == 0, "status %d: %s" % (result.returncode, result.stderr))
        lines = sorted(line.split(",") for line in result.stdout.split())
        check([line[0] for line in lines] == [str(rank) for rank in range(ranks)],
              "the ranks are 0 to N - 1: %r" % lines)
        for rank, line in enumerate(lines):
            check(line[1] == line[3] == str(ranks), "world sizes: %r" % line)
            check(line[2] == line[0], "local rank: %r" % line)
            check(line[4] == "127.0.0.1" and line[5] not in ("", "1"), "master: %r" % line)
            check(line[6:8] == ["", ""], "variables of another launch are gone: %r" % line)
            check((line[8] != "") == (rank == 0), "rank 0 alone gets the socket: %r" % line)
        check(len({line[5] for line in lines}) == 1, "one port for all")
        port = int(lines[0][5])
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))  # throws if somebody still has it


def rank_0_listens_from_the_start():
    connect = "import socket; socket.create_connection(('127.0.0.1', $MASTER_PORT), 10)"
    with tempfile.TemporaryDirectory() as folder:
        # Rank 0 never asks for the socket: the others connect before any program could have.
        script = ('if [ $RANK = 0 ]; then while [ $(ls %s | wc -l) -lt 2 ]; do sleep 0.01; done; '
                  'else "%s" -c "%s" && touch %s/$RANK; fi'
                  % (folder, sys.executable, connect, folder))
        result = run("-n", "3", "--timeout", "40", "sh", "-c", script)
        check(result.returncode == 0, "connecting before rank 0 asks for it: " + result.stderr)


def arguments_are_the_programs():
    result = run("-n", "1", "--timeout", "60", "sh", "-c", 'printf "%s;" "$@"', "name", "-n", "--help",
                 "a b")
    check(result.stdout == "-n;--help;a b;", "arguments: %r" % result.stdout)


def the_first_failure_counts():
    for script, status in (("exit 0", 0), ("[ $RANK = 1 ] && exit 7; exec sleep 60", 7),
                           ("[ $RANK = 0 ] && kill -9 $$; exec sleep 60", 128 + 9),
                           ("[ $RANK = 2 ] && kill -SEGV $$; exec sleep 60", 128 + 11)):
        result = run("-n", "3", "sh", "-c", script)
        check(result.returncode == status, "%s: status %d, not %d" % (script, result.returncode,
                                                                      status))
        said = "" if status == 0 else "zero-run: rank "
        check(result.stderr.startswith(said), "%s: said %r" % (script, result.stderr))


def nothing_is_left():
    # A rank that ignores SIGTERM, with a child in its group that does too.
    script = ("trap '' TERM; touch %s/$$; sh -c 'trap \"\" TERM; touch %s/$$; sleep 60' & "
              "while [ $(ls %s | wc -l) -lt 5 ]; do sleep 0.01; done; "
              "[ $RANK = 1 ] && exit 3; while true; do sleep 60; done")
    with tempfile.TemporaryDirectory() as folder:
        script = script.replace("%s", folder)
        # The fifth file says that all are there.
        launched = start("-n", "2", "--grace", "1", "sh", "-c", script)
        numbers = written_numbers(folder, 4)
        with open(os.path.join(folder, "go"), "w", encoding="utf-8"):
            pass
        launched.communicate(timeout=60)
        check(launched.returncode == 3, "status %d" % launched.returncode)
        wait_until(lambda: not any(runs(number) for number in numbers), "all processes are gone")


def time_is_limited():
    result = run("-n", "2", "--timeout", "1", "--grace", "1", "sh", "-c", "trap '' TERM; sleep 60")
    check(result.returncode == 124, "timeout: status %d" % result.returncode)
    check("longer than 1 s" in result.stderr, "timeout: says %r" % result.stderr)


def signals_are_forwarded():
    for number in (signal.SIGINT, signal.SIGTERM):
        with tempfile.TemporaryDirectory() as folder:
            script = "trap 'exit 5' INT TERM; touch %s/$$; while true; do sleep 0.01; done" % folder
            launched = start("-n", "2", "sh", "-c", script)
            numbers = written_numbers(folder, 2)
            launched.send_signal(number)
            launched.communicate(timeout=60)
            check(launched.returncode == 5, "signal %d: status %d" % (number, launched.returncode))
            check(not any(runs(pid) for pid in numbers), "signal %d: ranks are left" % number)


def ranks_end_with_the_launcher():
    with tempfile.TemporaryDirectory() as folder:
        launched = start("-n", "3", "sh", "-c", "touch %s/$$; exec sleep 60" % folder)
        numbers = written_numbers(folder, 3)
        launched.kill()
        launched.communicate(timeout=60)
        wait_until(lambda: not any(runs(number) for number in numbers), "ranks ended")


def misuse_is_told():
    for arguments, status, says in ((["-n", "2"], 2, "no program to start"),
                                    (["sh"], 2, "--ranks is required"),
                                    (["-n", "0", "true"], 2, "--ranks"),
                                    (["-n", "x", "true"], 2, "--ranks"),
                                    (["-n", "2", "/no/such/program"], 127,
                                     "cannot start /no/such/program: No such file")):
        result = run(*arguments)
        check(result.returncode == status, "%r: status %d" % (arguments, result.returncode))
        check(says in result.stderr, "%r: says %r" % (arguments, result.stderr))


for test in (variables_are_torchruns, rank_0_listens_from_the_start, arguments_are_the_programs,
             the_first_failure_counts, nothing_is_left, time_is_limited, signals_are_forwarded,
             ranks_end_with_the_launcher, misuse_is_told):
    begin = time.monotonic()
    test()
    print("%-32s %.2f s" % (test.__name__, time.monotonic() - begin))
sys.exit(1 if failures else 0)
