# SPDX-License-Identifier: Apache-2.0
"""check.py COMPILER INCLUDE_DIR FILE [DIR...]: FILE must be refused, for the reason it states.

FILE holds a comment line `// expect: REGEX`. The compiler must fail, and REGEX must be found in
the first line of its output that reports an error. The further folders hold headers of a third
party.
"""
import re
import subprocess
import sys


def main(compiler, include_dir, path, *third_party_dirs):
    with open(path, encoding="utf-8") as file:
        expected = re.search(r"^// expect: (.+)$", file.read(), re.MULTILINE)
    if not expected:
        return f"{path} holds no line '// expect: REGEX'"

    command = [compiler, "-std=c++20", "-fsyntax-only", "-I", include_dir, path]
    for folder in third_party_dirs:
        command += ["-isystem", folder]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if run.returncode == 0:
        return "compiled, but must not"
    errors = [line for line in run.stderr.splitlines() if re.search(r"\berror: ", line)]
    if not errors:
        return f"failed without an error line:\n{run.stderr}"
    print(errors[0])
    if not re.search(expected.group(1), errors[0]):
        return f"the first error does not match: {expected.group(1)}\n{run.stderr}"
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
