# SPDX-License-Identifier: Apache-2.0
# programs: train_gpt
# links: zero::gloo
# labels: multi_rank fault
# timeout: 180
"""network_hosts_test.py BIN_DIR: ranks on several hosts, which are network namespaces.

Each host has a network of its own, joined to the others by a bridge; ranks meet by TCP and train
over Gloo across real interfaces. One host is then cut off in the middle of a step. Needs the
rights to make network namespaces: without them it says so and is skipped, and with
ZERO_REQUIRE_NETNS=1 in the environment that is a failure.
"""
import ast
import os
import re
import subprocess
import sys
import tempfile
import time

TRAIN_GPT = os.path.join(sys.argv[1], "train_gpt")
TINY = ("--layers", "1", "--width", "32", "--heads", "2", "--context", "16", "--batch", "12",
        "--sample", "0", "--quiet")
NETWORK = "10.203.77."
SKIPPED = 77
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED: " + what, flush=True)


def ip(*arguments):
    subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True)


class Hosts:
    """Namespaces with one interface each, on a bridge in a namespace of its own."""

    def __init__(self, count):
        self.names = ["zero-%d-host%d" % (os.getpid(), i) for i in range(count)]
        self.switch = "zero-%d-switch" % os.getpid()
        self.made = []

    def address(self, host):
        return NETWORK + str(host + 1)

    def __enter__(self):
        try:
            self.make(self.switch)
            ip("-n", self.switch, "link", "add", "bridge0", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge0", "up")
            for host, name in enumerate(self.names):
                self.make(name)
                port = "port%d" % host
                ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port,
                   "netns", self.switch)
                ip("-n", self.switch, "link", "set", port, "master", "bridge0", "up")
                ip("-n", name, "address", "add", self.address(host) + "/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self, name):
        ip("netns", "add", name)
        self.made.append(name)

    def __exit__(self, *_):
        for name in reversed(self.made):
            subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True)

    def cut_off(self, host):
        ip("-n", self.switch, "link", "set", "port%d" % host, "down")

    def start(self, host, rank, ranks, *arguments, **variables):
        # A host name and process numbers of its own, as another machine has them.
        inside = ("ip", "netns", "exec", self.names[host], "unshare", "--uts", "--pid", "--fork",
                  "--kill-child", "--mount-proc", "sh", "-c",
                  'hostname "$1" && shift && exec "$@"', "sh", "host%d" % host)
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("OMPI_", "PMI", "SLURM_", "ZERO_", "MASTER_"))}
        environment.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR=self.address(0),
                           MASTER_PORT="29507", **variables)
        return subprocess.Popen((*inside, TRAIN_GPT, *TINY, *arguments), env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)


def finish(process, seconds):
    try:
        output, errors = process.communicate(timeout=seconds)
        return process.returncode, output, errors
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        return None, output, errors


def hash_of(path):
    with open(path, encoding="utf-8") as file:
        (row,) = ast.literal_eval(file.read())
    return row["backend"], row["parameters_xxh64"]


def in_threads(folder, ranks):
    path = os.path.join(folder, "threads.json")
    subprocess.run((TRAIN_GPT, *TINY, "--backend", "threads", "--ranks", str(ranks), "--steps",
                    "20", "--json", path), check=True, stdout=subprocess.DEVNULL, timeout=60)
    return hash_of(path)[1]


def check_training(folder, hosts, ranks, backend):
    """Rank r runs on host r mod hosts, so that ranks of one host are not neighbours."""
    what = "%d ranks on %d hosts, --backend %s" % (ranks, hosts, backend)
    path = os.path.join(folder, "hosts.json")
    with Hosts(hosts) as network:
        processes = [network.start(rank % hosts, rank, ranks, "--steps", "20", "--backend",
                                   backend, "--timeout", "30", "--json", path)
                     for rank in range(ranks)]
        for rank, process in enumerate(processes):
            code, _, errors = finish(process, 60)
            check(code == 0, "%s: rank %d ended with %s: %s" % (what, rank, code, errors[-400:]))
    if failures:
        return
    name, trained = hash_of(path)
    check(name == "gloo", what + ": ran on " + name)
    check(trained == in_threads(folder, ranks), what + ": trained other parameters than threads")
    print(what + ": the parameters of threads", flush=True)


def check_cut(hosts):
    """The cable of the last host is pulled; every other rank has to notice within the timeout."""
    timeout = 3
    what = "a host of %d is cut off" % hosts
    with Hosts(hosts) as network:
        processes = [network.start(rank, rank, hosts, "--steps", "100000000", "--backend", "gloo",
                                   "--timeout", str(timeout))
                     for rank in range(hosts)]
        time.sleep(4)  # well inside of training, whose first step is due after a second
        for rank, process in enumerate(processes):
            check(process.poll() is None, "%s: rank %d ended before the cut" % (what, rank))
        network.cut_off(hosts - 1)
        start = time.monotonic()
        for rank, process in enumerate(processes):
            code, _, errors = finish(process, timeout + 20)
            text = "%s: rank %d: %s" % (what, rank, errors.strip()[-300:])
            print(text, flush=True)
            check(code == 3, "%s: exit code %s" % (text, code))
            found = re.search(r"gloo rank %d, \w+ #\d+.* waited ([0-9.]+) s" % rank, errors)
            check(found is not None and timeout <= float(found[1]) < timeout + 1,
                  text + ": does not say where it was, or waited too long")
        # The rank that serves the store stays a little for ranks that it cannot reach any more.
        check(time.monotonic() - start < timeout + 10, what + ": took too long to end")


def may_make_hosts():
    try:
        with Hosts(1):
            return ""
    except (OSError, subprocess.CalledProcessError) as failure:
        return getattr(failure, "stderr", None) or str(failure)


def main():
    reason = may_make_hosts()
    if reason:
        print("SKIPPED: network namespaces cannot be made here: " + reason.strip())
        return 1 if os.environ.get("ZERO_REQUIRE_NETNS") == "1" else SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        check_training(folder, 2, 2, "gloo")
        check_training(folder, 3, 4, "auto")
    check_cut(2)
    check_cut(3)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
