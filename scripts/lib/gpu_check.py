# SPDX-License-Identifier: Apache-2.0
"""gpu_check.sh [OPTION...]: builds and runs everything that needs a GPU, and writes what came of it.

Exit codes: 0 nothing failed, 1 a check failed, 2 wrong arguments, 4 there is no GPU, no nvcc, or no
program to run (one line says which).
"""
import argparse
import datetime
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_checks
import gpu_programs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCHEMA = "zero.gpu_check/1"
FAILED, ABSENT = 1, 4


def options_of(arguments):
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check.sh", allow_abbrev=False,
        description="Builds and runs everything that needs a GPU, and writes what came of it as JSON.",
        epilog="Exit codes: 0 nothing failed, 1 a check failed, 2 wrong arguments, "
               "4 no GPU, no nvcc or no program to run.")
    parser.add_argument("--json", metavar="FILE",
                        help="where the results go (default: gpu_check.json in the build folder)")
    parser.add_argument("--build-dir", metavar="DIR", default=os.path.join(ROOT, "build", "gpu"),
                        help="build folder (default: build/gpu)")
    building = parser.add_mutually_exclusive_group()
    building.add_argument("--no-build", action="store_true",
                          help="the programs are in DIR/bin already: built elsewhere, carried here")
    building.add_argument("--build-only", action="store_true",
                          help="build the programs, GPU or not, and run none")
    parser.add_argument("--architectures", metavar="LIST", default="90",
                        help="what to compile for, as 90 or 80,90 (default: 90)")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these checks only")
    parser.add_argument("--time-limit", metavar="SECONDS", type=float, default=360,
                        help="for everything, the build included (default: 360)")
    parser.add_argument("--list", action="store_true", help="names the checks and ends")
    options = parser.parse_args(arguments)
    known = [check.name for check in gpu_checks.ALL]
    for name in options.only or []:
        if name not in known:
            parser.error("there is no check %r; there are %s" % (name, ", ".join(known)))
    if options.time_limit <= 0:
        parser.error("--time-limit has to be positive")
    options.build_dir = os.path.abspath(options.build_dir)
    options.json = os.path.abspath(options.json or os.path.join(options.build_dir,
                                                                "gpu_check.json"))
    return options


class Absent(Exception):
    """Something that has to be there is not; one line."""


class Run:
    """One run of the script: its deadline, and what it has found so far."""

    def __init__(self, options):
        self.options = options
        self.begin = time.monotonic()
        self.logs = os.path.join(options.build_dir, "gpu_check")
        os.makedirs(self.logs, exist_ok=True)
        self.report = {
            "schema": SCHEMA,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": gpu_programs.commit_of(ROOT),
            "time_limit_seconds": options.time_limit,
            "device": None,
            "nccl_version": None,
            "checks": [],
        }

    def seconds_left(self):
        return self.begin + self.options.time_limit - time.monotonic()

    def program(self, name):
        return os.path.join(self.options.build_dir, "bin", name)

    def execute(self, name, command, environment=None):
        """Runs a command until its end or the deadline; its output stays in a log."""
        return gpu_programs.execute(command, os.path.join(self.logs, name + ".log"),
                                    self.seconds_left(), environment)

    def add(self, name, status, seconds, reason=None, output=None, figures=None):
        entry = {"name": name, "status": status, "seconds": round(seconds, 2)}
        for key, value in (("reason", reason), ("output", output), ("figures", figures)):
            if value is not None:
                entry[key] = value
        self.report["checks"].append(entry)
        print("%-13s %-8s %7.1f s%s" % (name, status, seconds, "  " + reason if reason else ""),
              flush=True)

    def build(self, name, targets):
        """Builds as much of it as compiles; what went wrong is recorded as the check `name`."""
        result = self.execute(name, gpu_programs.build_command(self.options.build_dir, targets))
        self.add(name, "passed" if result.is_good() else "failed", result.seconds,
                 None if result.is_good() else result.problem(),
                 None if result.is_good() else result.last_lines())
        return result.is_good()

    def configure(self):
        if not gpu_programs.find_nvcc():
            raise Absent("missing: nvcc (with programs that were built elsewhere: --no-build)")
        result = self.execute("configure", gpu_programs.configure_command(
            ROOT, self.options.build_dir, self.options.architectures))
        if result.is_good():
            return True
        self.add("configure", "failed", result.seconds, result.problem(), result.last_lines())
        return False

    def require_programs(self, checks):
        missing = [name for check in checks for name in check.programs
                   if not os.path.exists(self.program(name))]
        if not os.path.exists(self.program("gpu_info")):
            missing.insert(0, "gpu_info")
        if missing:
            raise Absent("missing: %s in %s (--no-build runs what was built elsewhere)" % (
                ", ".join(dict.fromkeys(missing)), os.path.join(self.options.build_dir, "bin")))

    def look_at_device(self):
        result = self.execute("info", [self.program("gpu_info")])
        if result.code == gpu_programs.SKIPPED:
            raise Absent(result.last_line())
        if not result.is_good():
            self.add("info", "failed", result.seconds, result.problem(), result.last_lines())
            return False
        try:
            self.report["device"] = json.loads(result.last_line())
        except ValueError as problem:
            self.add("info", "failed", result.seconds, str(problem), result.last_lines())
            return False
        return True

    def run_check(self, check):
        if self.seconds_left() <= 0:
            self.add(check.name, "not_run", 0, "time")
            return
        missing = [name for name in check.programs if not os.path.exists(self.program(name))]
        if missing:
            self.add(check.name, "failed", 0, "%s was not built" % missing[0])
            return
        self.add(check.name, *check.run(self))

    def write(self):
        self.report["seconds"] = round(time.monotonic() - self.begin, 2)
        counts = {status: 0 for status in ("passed", "failed", "skipped", "not_run")}
        for entry in self.report["checks"]:
            counts[entry["status"]] += 1
        self.report["counts"] = counts
        os.makedirs(os.path.dirname(self.options.json), exist_ok=True)
        unfinished = self.options.json + ".tmp"
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(self.report, file, indent=1)
            file.write("\n")
        os.replace(unfinished, self.options.json)
        return counts


def build_and_run(run, checks):
    """A build takes minutes: whether there is a GPU is asked before most of it."""
    options = run.options
    if options.no_build:
        run.require_programs(checks)
    elif not run.configure() or not run.build("build_info", ["gpu_info"]):
        return
    if not options.build_only and not run.look_at_device():
        return
    if not options.no_build:
        programs = [name for check in checks for name in (*check.programs, *check.optional)]
        targets = gpu_programs.existing_targets(options.build_dir, dict.fromkeys(programs))
        if targets:
            run.build("build", targets)
    for check in checks if not options.build_only else ():
        run.run_check(check)


def main(arguments):
    options = options_of(arguments)
    if options.list:
        for check in gpu_checks.ALL:
            print("%-13s %s" % (check.name, check.what))
        return 0
    checks = [check for check in gpu_checks.ALL if not options.only or check.name in options.only]
    run = Run(options)
    try:
        build_and_run(run, checks)
    except Absent as absent:
        run.report["skipped"] = str(absent)
        run.write()
        print(absent, file=sys.stderr)
        return ABSENT
    counts = run.write()
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped, %(not_run)d not run" % counts
          + "; " + options.json)
    return FAILED if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
