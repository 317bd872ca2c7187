# SPDX-License-Identifier: Apache-2.0
# programs: compare_stages
# timeout: 300
"""paper_formulas.py BIN_DIR | FILE...: holds runs against the paper, without the library.

A FILE is what compare_stages --json wrote; given the folder of the programs, it runs
compare_stages on small models itself.
"""
import ast
import os
import subprocess
import sys
import tempfile

# Bytes per element of parameters, gradients and optimizer states. ZeRO (arXiv 1910.02054),
# section 3.1: 2, 2 and K = 12 in mixed precision with Adam. The other precisions follow from what
# they store: fp32 has no master, bf16_remainder 2 bytes in place of the master's 4.
BYTES = {
    "fp32": (4, 4, 8),
    "bf16_mixed": (2, 2, 12),
    "fp16_mixed": (2, 2, 12),
    "bf16_mixed_fp32_gradients": (2, 4, 12),
    "bf16_remainder": (2, 2, 10),
}
# Section 5: which of the three are partitioned.
PARTITIONED = {
    "0": (False, False, False),
    "1": (False, False, True),
    "2": (False, True, True),
    "3": (True, True, True),
    "3_keep_gathered": (True, True, True),
}
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


def volume(stage, micro_batches):
    """Section 7: reduce-scatters and all-gathers of a step, in Psi."""
    if stage == "3":
        return 1, 2 * micro_batches
    if stage == "3_keep_gathered":
        return 1, micro_batches
    return 1, 1


def check_row(row):
    what = "stage %s, %s, N = %d" % (row["stage"], row["precision"], row["ranks"])
    psi, ranks = row["psi"], row["ranks"]
    together = 0
    states = zip(("parameters", "gradients", "optimizer"), BYTES[row["precision"]],
                 PARTITIONED[row["stage"]])
    for state, size, is_partitioned in states:
        wanted = size * psi * (1 if is_partitioned else ranks)
        held = [rank[state] for rank in row["held"]]
        check(sum(held) == wanted,
              "%s: %s hold %d bytes, not %d" % (what, state, sum(held), wanted))
        if not is_partitioned:
            check(all(one == size * psi for one in held), "%s: %s differ by rank" % (what, state))
        together += sum(held)
    if row["precision"] == "bf16_mixed":
        paper = {"0": ranks * 16, "1": ranks * 4 + 12, "2": ranks * 2 + 14}.get(row["stage"], 16)
        check(together == paper * psi, "%s: %d bytes of model states" % (what, together))
    check(len(row["held"]) == ranks, what + ": not one entry for each rank")
    check(row["held"] == row["predicted"], what + ": held is not predicted")
    check(row["moved"] == row["predicted_moved"], what + ": moved is not predicted")
    reduces, gathers = volume(row["stage"], row["micro_batches"]) if ranks > 1 else (0, 0)
    moved = row["moved"]
    check(moved["reduce_scatter"] == reduces * psi, what + ": reduce-scatters are not Psi")
    check(moved["all_gather"] == gathers * psi, what + ": all-gathers are not Psi")
    check(moved["total"] == (reduces + gathers) * psi, what + ": the total is not the paper's")


def check_rows(rows):
    check(len(rows) > 0, "no rows")
    for row in rows:
        check_row(row)


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        return ast.literal_eval(file.read())  # numbers and strings look the same in Python


def run_small(folder, ranks, micro_batches, batch):
    path = os.path.join(folder, "rows of %d.json" % ranks)
    subprocess.run([os.path.join(sys.argv[1], "compare_stages"), "--quiet", "--layers", "2",
                    "--width", "20", "--heads", "2", "--context", "16", "--steps", "2",
                    "--ranks", str(ranks), "--micro-batches", str(micro_batches),
                    "--batch", str(batch), "--sample", "0", "--precisions", ",".join(BYTES),
                    "--json", path], stdout=subprocess.DEVNULL, check=True, timeout=100)
    rows = read_rows(path)
    check(len(rows) == len(BYTES) * len(PARTITIONED), "not every stage and precision ran")
    return rows


def self_test(rows):
    """Rows that are wrong must be found."""
    for field in ("parameters", "gradients", "optimizer"):
        spoilt = {**rows[0], "held": [{**rank, field: rank[field] + 2} for rank in rows[0]["held"]]}
        before = len(failures)
        check_row(spoilt)
        found = failures[before:]
        del failures[before:]
        check(found, "a wrong number of bytes of %s was not found" % field)


def main():
    if not os.path.isdir(sys.argv[1]):
        for path in sys.argv[1:]:
            check_rows(read_rows(path))
    else:
        with tempfile.TemporaryDirectory(prefix="paper formulas ") as folder:
            for ranks, micro_batches, batch in ((1, 1, 2), (2, 2, 4), (3, 1, 3), (4, 1, 4)):
                rows = run_small(folder, ranks, micro_batches, batch)
                check_rows(rows)
            self_test(rows)
    for failure in failures:
        print("FAILED: " + failure)
    print("%d failures" % len(failures))
    return 1 if failures else 0


sys.exit(main())
