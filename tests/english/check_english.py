"""Checks that comments and documents are plain English: no sentence opens with a word that hides its subject.

usage: check_english.py REPOSITORY [PATH...]
  PATH   only files below these folders, or these files; counts by folder are printed, too

Prints each finding as file:line: sentence, and exits with 1 if there is any. CONTRIBUTING.md has the rules.
"""

import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize

OPENINGS = ("What", "Of", "Who", "Whose", "That", "Which", "None", "Likewise", "As many")
PHRASES = ("likewise", "the same of", "is told", "are told", r"as it is(?=[.,;:]|$)", "not to be told", "of which", "in which")

OPENING = re.compile(rf"(?:{'|'.join(OPENINGS)})\b(?!')")
PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})(?!\w)|\bbesides[.;:]", re.IGNORECASE)
SENTENCE = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z])")
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
C_LIKE = (".cpp", ".h", ".cu")
SCRIPTS = (".py", ".sh", ".cmake")
# Outputs of programs, and data that others wrote.
LEFT_OUT = ("tests/data/", "tests/english/", "results/validation/", "LICENSE")


def runs(marked):
    """Joins neighbouring lines of one text to (line, text). marked: (line, text or None, whether another text begins)."""
    run, first = [], 0
    for number, text, begins in marked:
        if run and (text is None or begins):
            yield first, "\n".join(run)
            run = []
        if text is not None:
            first = first if run else number
            run.append(text)
    if run:
        yield first, "\n".join(run)


def c_comments(text):
    """Yields (line, text) of each run of // lines, and of each trailing // comment."""
    def marked():
        was_alone = False
        for number, line in enumerate(text.split("\n"), 1):
            match = re.search(r"(?:^|[\s;{}),])//+<?\s?(.*)$", line)
            if match and line[:match.start()].count('"') % 2:
                match = None
            is_alone = match is not None and not line[:match.start()].strip()
            yield number, match.group(1) if match else None, not (is_alone and was_alone)
            was_alone = is_alone

    return runs(marked())


def python_comments(text):
    comments, others = [], []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            begins = not comments or comments[-1][0] != token.start[0] - 1
            comments.append((token.start[0], token.string.lstrip("#!").strip(), begins))
        elif token.type == tokenize.STRING and token.string.lstrip("rbf").startswith('"""'):
            others.append((token.start[0], token.string.lstrip("rbf").strip('"')))
    return [*runs(comments), *others]


def hash_comments(text):
    found = (re.match(r"\s*#(?!!)\s?(.*)$", line) for line in text.split("\n"))
    return runs((number, match and match.group(1), False) for number, match in enumerate(found, 1))


def paragraphs(text):
    """Yields (line, text) of each paragraph, list item and table row of a Markdown document."""
    def marked():
        indents = True  # where a text may begin, four blanks make code of a line
        for number, line in enumerate(unfenced.split("\n"), 1):
            begins = re.match(r"\s*(?:[-*|#>]|\d+\.)\s*", line)
            is_text = line.strip() and not line.startswith(("|", "#")) and not (line.startswith("    ") and indents)
            yield number, (line[begins.end():] if begins else line) if is_text else None, bool(begins)
            indents = not is_text

    unfenced = re.sub(r"```.*?```", lambda match: "\n" * match.group().count("\n"), text, flags=re.DOTALL)
    return runs(marked())


def texts(path, text):
    if path.endswith(C_LIKE):
        return c_comments(text)
    if path.endswith(".py"):
        return python_comments(text)
    if path.endswith(".md"):
        return paragraphs(text)
    if path.endswith(SCRIPTS) or path.endswith("CMakeLists.txt"):
        return hash_comments(text)
    return ()


def findings_of(path, text):
    for line, comment in texts(path, text):
        plain = CODE.sub("X", comment).replace("**", "")
        position = 0
        for sentence in SENTENCE.split(plain):
            at = plain.find(sentence, position)
            position = at + len(sentence)
            where = line + plain.count("\n", 0, at)
            one_line = " ".join(sentence.split())
            if (OPENING.match(one_line) and not one_line.endswith("?")) or PHRASE.search(one_line):
                yield where, one_line


def show_itself():
    bad = ["// What a link costs.\nint a;", "int a;  // of which most. Of all", "// Fine. That holds.", "// One of which\n"]
    good = ["// The cost.\n", "// What binds the step?\n", "// Whatever comes.\n", 'puts("// What");\n']
    for text in bad:
        assert list(findings_of("a.cpp", text)), text
    for text in good:
        assert not list(findings_of("a.cpp", text)), text
    assert list(findings_of("a.md", "- **Words.** What is said is bad.\n"))
    assert not list(findings_of("a.md", "```\nWhat binds\n```\n`What` binds.\n"))
    assert list(findings_of("a.py", '"""What it is."""\n'))


def main():
    show_itself()
    root = pathlib.Path(sys.argv[1])
    below = tuple(sys.argv[2:])
    files = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
                           check=True, text=True, capture_output=True).stdout.split("\n")
    counts = collections.Counter()
    for path in files:
        if not path or path.startswith(LEFT_OUT) or (below and not path.startswith(below)):
            continue
        if not (root / path).is_file() or not path.endswith((*C_LIKE, *SCRIPTS, ".md", "CMakeLists.txt")):
            continue
        for line, sentence in findings_of(path, (root / path).read_text()):
            print(f"{path}:{line}: {sentence[:110]}")
            counts["/".join(path.split("/")[:2])] += 1
    print(f"{sum(counts.values())} findings" + "".join(f"; {k} {v}" for k, v in sorted(counts.items())))
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
