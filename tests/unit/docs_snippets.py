# SPDX-License-Identifier: Apache-2.0
"""docs_snippets.py: code in the documentation comes from compiled files, and links lead somewhere.

A block after <!-- from FILE --> must stand in FILE, line by line; "// ..." stands for lines left out.
Files and examples that the text names in backquotes or as links must exist.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SNIPPET = re.compile(r"<!-- from (\S+) -->\n```cpp\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)\)")
NAMED = re.compile(r"`((?:examples|docs|tests|include|scripts|bench)/[\w./-]+)`")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def documents():
    yield os.path.join(ROOT, "README.md")
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.join(folder, name)


def snippet_problem(source, block):
    """None, or the first part of the block that the source does not contain in order."""
    position = 0
    for part in re.split(r"^ *// \.\.\.\n", block, flags=re.MULTILINE):
        found = source.find(part, position)
        if found < 0:
            return part
        position = found + len(part)
    return None


def problems_of(path):
    text = read(path)
    name = os.path.relpath(path, ROOT)
    for file, block in SNIPPET.findall(text):
        part = snippet_problem(read(os.path.join(ROOT, file)), block)
        if part is not None:
            yield f"{name}: this is not in {file}:\n{part}"
    for target in LINK.findall(text):
        if "://" not in target and not os.path.exists(os.path.join(os.path.dirname(path), target)):
            yield f"{name}: the link {target} leads nowhere"
    for file in NAMED.findall(text):
        if not os.path.exists(os.path.join(ROOT, file)):
            yield f"{name}: there is no {file}"


def main():
    problems = [problem for path in documents() for problem in problems_of(path)]
    snippets = sum(len(SNIPPET.findall(read(path))) for path in documents())
    print(*problems, f"{snippets} snippets, {len(problems)} problems", sep="\n")
    return 1 if problems or snippets == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
