#!/usr/bin/env python3
"""Runs every command that the documents show and compares what it prints.

usage: check_readme.py BUCKETWISE REPOSITORY [--write]

The documents are README.md, all of docs/, and scenarios/seeds.md. A command is a line "$ ..." in a ```console block,
with the lines after it for as long as they end in a backslash. The lines up to the next command are its exact output,
a line "..." standing for any number of lines. `bucketwise` is the given binary. A script of the repository (./demo.sh,
./test.sh) is only checked for its existence: the tests are run by one of them.

With --write, outputs that differ are replaced by what is printed now, where lines stand beside "..." by those that are
most like them: read what that makes of a document.

README.md stays short, prose within 110 columns, and links between the repository's Markdown files lead somewhere.
First the check shows itself that it finds what is wrong in documents made for it.
"""

import difflib
import itertools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

COLUMNS = 110
README_LINES = 150
FEWEST_COMMANDS = 20  # as many as there were when the README was one page
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def documents(repository):
    return [repository / "README.md", *sorted((repository / "docs").rglob("*.md")), repository / "scenarios/seeds.md"]


# --- commands and what they print ---------------------------------------------------------------------------


def console_blocks(text):
    return re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands_of(block):
    """Pairs of a command and the lines it must print."""
    pairs = []
    continues = False
    for line in block.splitlines():
        if continues:
            pairs[-1] = (f"{pairs[-1][0]}\n{line}", [])
        elif line.startswith("$ "):
            pairs.append((line[2:], []))
        elif pairs:
            pairs[-1][1].append(line.rstrip())
        continues = line.endswith("\\") and not (pairs and pairs[-1][1])
    return pairs


def matches(expected, actual):
    if not expected:
        return not actual
    if expected[0] == "...":
        return any(matches(expected[1:], actual[i:]) for i in range(len(actual) + 1))
    return bool(actual) and expected[0] == actual[0] and matches(expected[1:], actual[1:])


def without_empty_end(lines):
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def run(command, repository, folder):
    """Returns the output, or a complaint, as text. `folder` comes first on PATH."""
    environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
    result = subprocess.run(["bash", "-c", command], cwd=repository, env=environment, capture_output=True, text=True,
                            timeout=120)
    if result.returncode != 0:
        return f"exit code {result.returncode}: {result.stderr}"
    return without_empty_end([line.rstrip() for line in result.stdout.splitlines()])


def check(command, expected, repository, folder):
    """Returns a complaint, or nothing."""
    if command.startswith("./"):
        script = repository / command.split()[0]
        return None if os.access(script, os.X_OK) else f"{script} is not a script that can be run"
    actual, expected = run(command, repository, folder), without_empty_end(expected)
    if isinstance(actual, str):
        return actual
    if not matches(expected, actual):
        return "printed:\n" + "\n".join(actual) + "\nthe document shows:\n" + "\n".join(expected)
    return None


def command_complaints(text, repository, folder):
    """A complaint, or None, for each command of a document."""
    for block in console_blocks(text):
        for command, expected in commands_of(block):
            complaint = check(command, expected, repository, folder)
            yield f"$ {command}\n{complaint}\n" if complaint else None


# --- outputs made anew --------------------------------------------------------------------------------------


def likeness(lines, others):
    return difflib.SequenceMatcher(None, "\n".join(lines), "\n".join(others), autojunk=False).ratio()


def renewed(expected, actual):
    """`actual`, shortened where `expected` is."""
    lines, begin = [], 0
    for is_gap, run_of in itertools.groupby(expected, lambda line: line == "..."):
        shown = list(run_of)
        if is_gap:
            lines.append("...")
            continue
        first = [0] if not lines else range(begin, len(actual) - len(shown) + 1)
        if len(lines) + len(shown) == len(expected):  # the last ones
            first = [len(actual) - len(shown)]
        at = max(first, key=lambda i: likeness(shown, actual[i:i + len(shown)]))
        lines += actual[at:at + len(shown)]
        begin = at + len(shown)
    return lines if "..." in expected else actual


def renewed_text(text, repository, folder):
    def renewed_block(match):
        block = "".join(f"{line.rstrip()}\n" for line in match.group(1).splitlines())
        for command, expected in commands_of(block):
            expected = without_empty_end(expected)
            if command.startswith("./") or not expected:
                continue
            actual = run(command, repository, folder)
            if isinstance(actual, list) and not matches(expected, actual):
                shown = "\n".join(expected)
                block = block.replace(f"$ {command}\n{shown}", f"$ {command}\n" + "\n".join(renewed(expected, actual)))
        return f"```console\n{block}```"

    return re.sub(r"^```console\n(.*?)^```$", renewed_block, text, flags=re.MULTILINE | re.DOTALL)


# --- lines and links ----------------------------------------------------------------------------------------


def line_complaints(text):
    """Prose that is too wide. Printed lines and rows of tables cannot be broken."""
    without_output = FENCED.sub(lambda match: "\n" * match.group().count("\n"), text)
    for number, line in enumerate(without_output.splitlines(), 1):
        if len(line) > COLUMNS and not line.startswith("|"):
            yield f"line {number}: expected at most {COLUMNS} columns, got {len(line)}"


def readme_complaints(text):
    lines = text.splitlines()
    if len(lines) > README_LINES:
        yield f"expected at most {README_LINES} lines, got {len(lines)}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"line {number}: expected at most {COLUMNS} columns, got {len(line)}"


def anchors_of(text):
    """Returns the anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def link_complaints(document, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        if path and not file.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors_of(text if file == document else file.read_text()):
            yield f"{target}: no such heading"


def markdown_files(repository):
    """All but what lies in build folders, and the reports that the program wrote."""
    return [file for file in sorted(repository.rglob("*.md"))
            if file.relative_to(repository).parts[0] != "build" and file.name != "report.md"]


# --- the check of the check ---------------------------------------------------------------------------------

# A console block and whether it must be complained about.
BLOCKS = [
    ("$ echo one; echo two\none\ntwo\n", False),
    ("$ echo one; echo two\none\n", True),
    ("$ echo one; echo two\none\ntwo\nthree\n", True),
    ("$ echo one; echo two\ntwo\none\n", True),
    ("$ echo one; echo two\none\ntwp\n", True),
    ("$ seq 9\n1\n...\n9\n", False),
    ("$ seq 9\n1\n...\n10\n", True),
    ("$ seq 9\n...\n3\n", True),
    ("$ seq 9\n...\n", False),
    ("$ echo one \\\n    two\none two\n", False),
    ("$ echo one \\\n    two\none\n", True),
    ("$ echo 'one \\'\none \\\n", False),
    ("$ echo '  one'\none\n", True),
    ("$ true\n", False),
    ("$ true\n\n", False),
    ("$ echo one; false\none\n", True),
    ("$ ./there.sh\n", False),
    ("$ ./missing.sh\n", True),
]


# A command, what is shown of it, and what --write makes of that.
RENEWED = [
    ("echo one; echo two", "one\nthree\n", "one\ntwo\n"),
    ("echo one; echo two", "one\n", "one\ntwo\n"),
    ("seq 100 109", "101\n...\n", "100\n...\n"),
    ("seq 100 109", "...\n108\n", "...\n109\n"),
    ("echo cap 4; echo; echo step 20; echo 9", "cap 5\n...\nstep 21\n...\n", "cap 4\n...\nstep 20\n...\n"),
    ("false", "one\n", "one\n"),
]


def wrong_verdicts():
    """Documents that the checks above judge wrongly."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "there.sh").touch(0o755)
        (folder / "other.md").write_text("# A title, with `code`\n")
        for block, wrong in BLOCKS:
            found = list(command_complaints(f"# Title\n\n```console\n{block}```\n", folder, folder))
            if len(found) != 1 or bool(found[0]) != wrong:
                yield f"{block!r}: expected {'a' if wrong else 'no'} complaint, got {found}"
        wide = "x" * (COLUMNS + 1)
        for command, shown, renewed_to in RENEWED:
            text, expected = (f"```console\n$ {command}\n{lines}```\n" for lines in (shown, renewed_to))
            if renewed_text(text, folder, folder) != expected:
                yield f"{text!r}: expected to be renewed to {expected!r}"
        for text, count in [(wide, 1), (wide[1:], 0), (f"```\n{wide}\n```\n{wide}", 1), (f"|{wide}|", 0)]:
            if len(list(line_complaints(text))) != count:
                yield f"lines of {text!r}: expected {count} complaints"
        for text, count in [("x\n" * README_LINES, 0), ("x\n" * (README_LINES + 1), 1), (f"```\n{wide}\n```\n", 1)]:
            if len(list(readme_complaints(text))) != count:
                yield f"a README {text[:20]!r}...: expected {count} complaints"
        for target, wrong in [("other.md", False), ("other.md#a-title-with-code", False), ("#here", False),
                              ("https://x.org/y.md", False), ("nothing.md", True), ("other.md#here", True), ("#there", True)]:
            if bool(list(link_complaints(folder / "a.md", f"# Here\n\n[text]({target})\n"))) != wrong:
                yield f"a link to {target}: expected {'a' if wrong else 'no'} complaint"


def main():
    binary, repository = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    write = "--write" in sys.argv[3:]
    complaints = [f"check_readme.py itself: {wrong}" for wrong in wrong_verdicts()]
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bucketwise").symlink_to(binary)
        for document in documents(repository):
            if write:
                document.write_text(renewed_text(document.read_text(), repository, folder))
            for complaint in command_complaints(document.read_text(), repository, folder):
                count += 1
                if complaint:
                    complaints.append(f"{document.relative_to(repository)}\n{complaint}")
    if count < FEWEST_COMMANDS:
        complaints.append(f"expected at least {FEWEST_COMMANDS} commands, got {count}")
    complaints += [f"README.md: {complaint}" for complaint in readme_complaints((repository / "README.md").read_text())]
    for file in markdown_files(repository):
        text = file.read_text()
        complaints += [f"{file.relative_to(repository)}: {complaint}"
                       for complaint in [*line_complaints(text), *link_complaints(file, text)]]
    print("\n".join(complaints + [f"{count} commands, {len(complaints)} failures"]))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
