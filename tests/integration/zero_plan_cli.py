# SPDX-License-Identifier: Apache-2.0
# programs: zero-plan
"""zero_plan_cli.py BIN_DIR: runs the real zero-plan and looks at what it prints and returns.

"""
import ast
import os
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.join(sys.argv[1], "zero-plan")
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED: " + what)


def run(*arguments, stdout=subprocess.PIPE):
    return subprocess.run([PROGRAM, *arguments], stdout=stdout, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True, timeout=60, check=False)


def expect(code, *arguments, says=""):
    result = run(*arguments)
    what = " ".join(arguments)[:120]
    check(result.returncode == code, "%s: exit code %d, not %d: %s"
          % (what, result.returncode, code, result.stderr[:300]))
    if code > 1:
        check(result.stdout == "", "%s: printed a table although it failed" % what)
        check(says in result.stderr, "%s: says %r, not %r" % (what, result.stderr, says))
        check(1 <= result.stderr.strip().count("\n") + 1 <= 2,
              "%s: more than two lines on stderr" % what)
    else:
        check(result.stderr == "", "%s: wrote to stderr: %s" % (what, result.stderr))
    return result.stdout


def written(path, code, *arguments):
    expect(code, *arguments, "--json", path)
    check(not os.path.exists(path + ".tmp"), "an unfinished file was left behind")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for word, value in (("null", "None"), ("true", "True"), ("false", "False")):
        text = text.replace(": " + word, ": " + value)
    return ast.literal_eval(text)


def to_json(value):
    """Of strings, whole numbers, lists and dictionaries."""
    return repr(value).replace("'", '"')


def layout_with(tensor):
    return to_json({"schema": "zero.layout/1",
                       "units": [{"name": "u", "tensors": [{"name": "a", "shape": [2]}, tensor]}]})


def check_tables(folder):
    rows = [line.split() for line in expect(0, "--table1").splitlines()]
    check(["64", "31.4", "16.6", "1.88", "536", "284", "32", "4187", "2218", "250"] in rows,
          "table 1 lacks the row of N = 64")
    check(["4", "52.5", "41.3", "30", "896", "704", "512", "7000", "5500", "4000"] in rows,
          "table 1 lacks the row of N = 4")
    check(len(rows) == 8, "table 1 does not have a title, a header and six rows")
    table = written(os.path.join(folder, "table 1.json"), 0, "--table1")
    check(len(table["cells"]) == 54, "table 1 does not have 54 cells")
    for cell in table["cells"]:
        partitioned = {"os": 12, "os+g": 14, "os+g+p": 16}[cell["stage"]]
        exact = (16 - partitioned) * cell["psi"] * cell["ranks"] + partitioned * cell["psi"]
        check(cell["bytes_all_ranks"] == exact, "table 1 does not count exactly")
        check(cell["bytes_per_rank"] * cell["ranks"] == exact, "table 1 divides wrongly")
    rows = [line.split() for line in expect(0, "--table2").splitlines()]
    check(["4", "256", "8B", "30.4B", "57.6B", "0.5T"] in rows, "table 2 lacks the row of MP = 4")
    check(["16", "1024", "32B", "121.6B", "230.4B", "2T"] in rows,
          "table 2 lacks the row of MP = 16")
    check(len(written(os.path.join(folder, "table2.json"), 0, "--table2")["cells"]) == 20,
          "table 2 does not have 20 cells")


def check_formulas(folder):
    text = expect(0, "--params", "7.5B", "--ranks", "64")
    for part in ("120000000000", "31406250000", "16640625000", "1875000000", "4 Psi + 12 Psi/N",
                 "2 Psi + 14 Psi/N", "16 Psi/N", "22500000000"):
        check(part in text, "--params lacks " + part)
    check("Megatron" not in text, "other systems are shown unasked")
    text = expect(0, "--params", "7.5e9", "--ranks", "64", "--others")
    for part in ("6 Psi + 12 Psi/N", "4 Psi + 16 Psi/N"):
        check(part in text, "--others lacks " + part)
    text = expect(0, "--params", "1M", "--ranks", "3", "--stage", "1", "--precision", "fp32")
    check("8 Psi + 8 Psi/N" in text, "the coefficients are not the policy's")
    check(len(text.splitlines()) == 4, "--stage does not choose one line")
    answer = written(os.path.join(folder, "params.json"), 0, "--params", "1T", "--ranks", "10000")
    check([row["held"]["total"] for row in answer["stages"]][:4]
          == [16 * 10**12, 4 * 10**12 + 12 * 10**8, 2 * 10**12 + 14 * 10**8, 16 * 10**8],
          "10^12 parameters on 10,000 ranks are wrong")
    check([row["moved"]["total"] for row in answer["stages"]]
          == [2 * 10**12, 2 * 10**12, 2 * 10**12, 3 * 10**12, 2 * 10**12],
          "the elements moved are wrong")


def check_budgets(folder):
    text = expect(0, "--budget", "32GB", "--ranks", "64")
    for part in ("2000000000", "7641791044", "14422535211", "128000000000"):
        check(part in text, "--budget lacks " + part)
    text = expect(0, "--budget", "80GiB", "--ranks", "64", "--params", "20.5B")
    check("smallest stage that holds 20500000000 parameters: 1" in text, "80GiB is not 80 x 2^30")
    text = expect(0, "--budget", "80GB", "--ranks", "64", "--params", "20.5B")
    check("parameters: 2" in text, "80GB is not 80 x 10^9")
    check("no stage" in expect(1, "--budget", "1GB", "--ranks", "2", "--params", "1B"),
          "a model that does not fit is not refused")
    text = expect(0, "--budget", "1GB", "--ranks", "4", "--gpt", "4,128,256,128")
    check("smallest stage that fits: 0" in text, "a small layout does not fit")
    answer = written(os.path.join(folder, "budget.json"), 1, "--budget", "1MB", "--ranks", "4",
                     "--gpt", "4,128,256,128")
    check(answer["smallest_stage"] is None, "a layout that does not fit is said to fit")


def check_layouts(folder):
    path = os.path.join(folder, "a model.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(expect(0, "--gpt", "2,32,256,16"))
    plans = []
    for name, source in (("file", ("--layout", path)), ("gpt", ("--gpt", "2,32,256,16"))):
        plans.append(written(os.path.join(folder, name + ".plan"), 0, *source, "--ranks", "3",
                             "--stage", "3", "--rank", "1"))
    check(plans[0] == plans[1], "a written layout is planned differently")
    plan = plans[0]
    psi = plan["psi"]
    check(psi == 256 * 32 + 16 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32, "Psi is wrong")
    check(plan["moved"]["total"] == 3 * psi, "stage 3 does not move 3 Psi")
    together = {"parameters": 0, "gradients": 0, "optimizer": 0}
    for rank in ("0", "1", "2"):
        held = written(os.path.join(folder, "rank.plan"), 0, "--layout", path, "--ranks", "3",
                       "--stage", "3", "--rank", rank)["held"]
        for state in together:
            together[state] += held[state]
    check(together == {"parameters": 2 * psi, "gradients": 2 * psi, "optimizer": 12 * psi},
          "the ranks together do not hold 16 Psi")
    check(sum(b["real_bytes"] + b["padding_bytes"] for b in plan["buffers"])
          == plan["arena_bytes"] == plan["held"]["total"], "the buffers are not the arena")
    expect(0, "--layout", path, "--ranks", "2", "--stage", "2", "--accumulation", "reduce_every",
           "--micro-batches", "4", "--summary")


def check_replicas(folder):
    model = ("--gpt", "2,32,256,16", "--stage", "2", "--ranks", "3")
    alone = written(os.path.join(folder, "alone.plan"), 0, *model)
    plan = written(os.path.join(folder, "replicas.plan"), 0, *model, "--replicas", "4")
    crossing = 0
    for rank in ("0", "1", "2"):
        path = os.path.join(folder, "replica.plan")
        crossing += written(path, 0, *model, "--replicas", "4", "--rank", rank)["moved"]["crossing"]
    check(crossing == 2 * plan["psi"], "the shards of a group do not cross as 2 Psi")
    check(alone["moved"]["crossing"] == 0, "something crosses although there is one group")
    check(plan["moved"]["total"] == alone["moved"]["total"] == 2 * plan["psi"],
          "replicas change what moves inside a group")
    check("N = 3 in each of 4 replicas" in expect(0, *model, "--replicas", "4", "--summary"),
          "the replicas are not named")


def check_scale():
    for question in (("--params", "1T"), ("--gpt", "128,25600,50257,2048", "--stage", "3")):
        expect(0, *question, "--ranks", "10000")
        # Memory: 10^12 parameters must fit where the program itself barely does.
        limited = subprocess.run(["/bin/sh", "-c", 'ulimit -v "$0"; exec "$@"', "300000", PROGRAM,
                                  *question, "--ranks", "10000"], stdout=subprocess.DEVNULL,
                                 timeout=60, check=False)
        check(limited.returncode == 0, "10^12 parameters need more than 300 MB")


def check_refusals(folder):
    usage = [
        ((), "is wanted"), (("--frobnicate",), "frobnicate"), (("--table1", "--table2"), "one of"),
        (("--params", "7.5B"), "--ranks"), (("--params", "lots", "--ranks", "2"), "lots"),
        (("--params", "-1", "--ranks", "2"), "-1"), (("--params", "1.5", "--ranks", "2"), "1.5"),
        (("--params", "1B", "--ranks", "0"), "--ranks"),
        (("--params", "1B", "--ranks", "-4"), "--ranks"),
        (("--params", "1B", "--ranks", "2", "--stage", "4"), "3_keep_gathered"),
        (("--params", "1B", "--ranks", "2", "--precision", "fp8"), "bf16_remainder"),
        (("--params", "1B", "--ranks", "2", "--optimizer", "muon"), "adamw"),
        (("--params", "1B", "--ranks", "2", "--micro-batches", "3"), "--accumulation"),
        (("--params", "1B", "--ranks", "2", "--stage", "0", "--accumulation", "reduce_every"),
         "reduce_every"),
        (("--gpt", "1,8,8,8", "--ranks", "2", "--stage", "0", "--replicas", "2"), "stage 0"),
        (("--gpt", "1,8,8,8", "--ranks", "999999", "--stage", "1", "--replicas", "9999"), "2^31"),
        (("--budget", "80", "--params"), "--params"), (("--budget", "80XB", "--ranks", "2"), "80XB"),
        (("--gpt", "1,2,3"), "LAYERS"), (("--gpt", "1,8,8,8", "--ranks", "2"), "--stage"),
        (("--gpt", "1,8,8,8", "--ranks", "2", "--stage", "1", "--rank", "2"), "rank 2 of 2"),
        (("--gpt", "1,8,8,8", "--alignment", "48"), "power of two"),
        (("--gpt", "9,999999999,9,9", "--ranks", "2", "--stage", "1"), "2^63 - 1"),
        (("--gpt", "9,100000000,9,9", "--ranks", "2", "--stage", "1"), "64 bits"),
    ]
    for arguments, says in usage:
        expect(2, *arguments, says=says)
    expect(4, "--layout", os.path.join(folder, "none.json"), "--ranks", "2", "--stage", "1",
           says="none.json")
    files = [
        ("{", "not JSON"), ("[]", "object"), (b"\xff\xfe\x00", "not JSON"),
        (to_json({"schema": "zero.layout/9", "units": []}), "zero.layout/1"),
        (to_json({"schema": "zero.layout/1", "units": [], "more": 1}), "unknown key"),
        ('{"schema": "zero.layout/1", "units": [], "units": []}', "twice"),
        (layout_with({"name": "a", "shape": [1]}), "two tensors"),
        (layout_with({"name": "b", "shape": [-1]}), "-1"),
        (layout_with({"name": "b", "shape": "2"}), "array"),
        (layout_with({"name": "b", "shape": [2**62, 4]}), "2^63 - 1"),
        (layout_with({"name": "b", "shape": [2**62]}), "64 bits"),
        (layout_with({"name": "b", "shape": [2], "tied_to": "z"}), "no earlier tensor"),
        (layout_with({"name": "b", "shape": [2], "group": "x"}), "no_decay"),
    ]
    for number, (text, says) in enumerate(files):
        path = os.path.join(folder, "bad%d.json" % number)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        expect(2, "--layout", path, "--ranks", "2", "--stage", "1", says=says)
    expect(3, "--table1", "--json", os.path.join(folder, "no folder", "f"), says="cannot write")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w", encoding="utf-8") as full:
            check(run("--table1", stdout=full).returncode == 3, "a full disk looks like success")
    check("--budget" in expect(0, "--help"), "--help does not name the options")


def main():
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zero plan ") as folder:
        check_tables(folder)
        check_formulas(folder)
        check_budgets(folder)
        check_layouts(folder)
        check_replicas(folder)
        check_scale()
        check_refusals(folder)
    print("%d failures in %.1f s" % (len(failures), time.monotonic() - began))
    return 1 if failures else 0


sys.exit(main())
