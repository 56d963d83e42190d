#!/usr/bin/env python3
"""Counts what a run of ctest tested: the cases of each Catch2 binary, and every script as one.

usage: count_tests.py BUILD_FOLDER
       count_tests.py --self-test

Reads what `ctest --output-junit Testing/tests.xml` leaves: that file, which knows how each test ended, and
Testing/Temporary/LastTest.log, which holds all that each has printed. Prints one line,

    N passed, N failed, N skipped

and exits with 1 if anything failed, or if nothing was tested. A binary that crashed, or never said how many of its
cases passed, is one failure more than it names. A case is skipped that says so, in the v3 of Catch2, or that warns
"skipped: ...", which is how the cases here do it, for the v2.
"""

import dataclasses
import re
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

SECTION = re.compile(r'^\d+/\d+ Test: (?P<name>.*)\nCommand: "(?P<program>[^"\n]*)".*\n(?:.*\n)*?Output:\n-+\n'
                     r"(?P<output>(?:.*\n)*?)<end of output>$", re.MULTILINE)
ALL_PASSED = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)$", re.MULTILINE)
SOME_FAILED = re.compile(r"^test cases: +\d+((?: +\| +\d+ [a-z ]+)+)$", re.MULTILINE)
NONE_RAN = re.compile(r"^No tests ran", re.MULTILINE)
# Catch2 prints this above the first message of a case: its name between lines, and its place.
CASE = re.compile(r"^-{79}\n(?P<name>(?:(?!-{79}).*\n)+?)-{79}\n.+:\d+\n\.{79}$", re.MULTILINE)
SKIPS = re.compile(r": warning:\n +skipped: ", re.MULTILINE)


@dataclasses.dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other):
        return Count(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def warned_of_skipping(output):
    """How many cases."""
    headers = [*CASE.finditer(output)]
    cases = set()
    for warning in SKIPS.finditer(output):
        cases.add(max((header.start(), header["name"]) for header in headers if header.start() < warning.start())[1]
                  if headers and headers[0].start() < warning.start() else None)
    return len(cases)


def count_of_binary(output, ended_well):
    ends = [*ALL_PASSED.finditer(output), *SOME_FAILED.finditer(output)]
    if not ends:
        return Count() if ended_well and NONE_RAN.search(output) else Count(failed=1)
    last = max(ends, key=lambda end: end.start())  # programs that a case has started may have printed others
    if last.re is ALL_PASSED:
        count = Count(passed=int(last[1]))
    else:
        by_word = {word.strip(): int(number) for number, word in re.findall(r"(\d+) ([a-z ]+)", last[1])}
        count = Count(by_word.get("passed", 0) + by_word.get("failed as expected", 0), by_word.get("failed", 0),
                      by_word.get("skipped", 0))
    warned = min(warned_of_skipping(output), count.passed)
    count += Count(passed=-warned, skipped=warned)
    # A leak, say, which a sanitizer reports at the end.
    return count if ended_well or count.failed > 0 else count + Count(failed=1)


def count_of_test(case, section):
    status = case.get("status")
    if status == "disabled" or (status == "notrun" and "SKIP_" in case.find("skipped").get("message", "")):
        return Count(skipped=1)
    is_binary = section is not None and section["program"].endswith("_tests")
    if is_binary and status in ("run", "fail"):
        return count_of_binary(section["output"], status == "run")
    return Count(passed=1) if status == "run" else Count(failed=1)


def count_of(build):
    cases = xml.etree.ElementTree.parse(build / "Testing" / "tests.xml").getroot().findall("testcase")
    log = (build / "Testing" / "Temporary" / "LastTest.log").read_text(errors="replace")
    sections = {section["name"]: section for section in SECTION.finditer(log)}
    if unknown := {case.get("name") for case in cases} ^ sections.keys():
        raise ValueError(f"tests.xml and LastTest.log are of different runs: only one has {', '.join(sorted(unknown))}")
    return sum((count_of_test(case, sections[case.get("name")]) for case in cases), Count())


# --- the check of the check ------------------------------------------------------------------------------

LINE = "-" * 79
WELL = f"{'=' * 79}\nAll tests passed (4060 assertions in 14 test cases)\n\n"
TWO_FAILED = f"{'=' * 79}\ntest cases: 77 | 75 passed | 2 failed\nassertions: 5411 | 5409 passed | 2 failed\n\n"
AS_EXPECTED = "test cases:  9 |  6 passed | 1 failed | 2 failed as expected\nassertions: - none -\n"
VERSION_3 = "test cases: 10 | 6 passed | 1 failed | 3 skipped\nassertions: 40 | 39 passed | 1 failed\n"


def warning(case, text):
    return f"\n{LINE}\n{case}\n{LINE}\na_test.cpp:142\n{'.' * 79}\n\na_test.cpp:150: warning:\n  {text}\n"


# The output of a binary, whether it ended well, and the count.
OF_BINARIES = [
    (WELL, True, Count(14, 0, 0)),
    ("All tests passed (1 assertion in 1 test case)\n", True, Count(1, 0, 0)),
    (TWO_FAILED, False, Count(75, 2, 0)),
    (AS_EXPECTED, False, Count(8, 1, 0)),
    (VERSION_3, False, Count(6, 1, 3)),
    ("test cases: 1 | 1 skipped\nassertions: - none -\n", True, Count(0, 0, 1)),
    ("No tests ran\n", True, Count(0, 0, 0)),
    (TWO_FAILED + WELL, True, Count(14, 0, 0)),  # of a child, then its own
    (WELL + "==8093==ERROR: LeakSanitizer: detected memory leaks\n", False, Count(14, 1, 0)),
    ("Segmentation fault\n", False, Count(0, 1, 0)),
    ("", True, Count(0, 1, 0)),
    (warning("one", "skipped: no root") + warning("one", "skipped: still none") + warning("two", "skipped: x") + WELL, True,
     Count(12, 0, 2)),
    (warning("a name of\n  two lines", "skipped: no root") + WELL, True, Count(13, 0, 1)),
    (warning("one", "the machine is slow") + WELL, True, Count(14, 0, 0)),
]
# The count of other tests, by ctest's word for their end.
OF_SCRIPTS = [("run", "", Count(1, 0, 0)), ("fail", "", Count(0, 1, 0)), ("disabled", "", Count(0, 0, 1)),
              ("notrun", "SKIP_RETURN_CODE=77", Count(0, 0, 1)), ("notrun", "Unable to find executable", Count(0, 1, 0)),
              ("notrun", "Required Files Missing", Count(0, 1, 0))]


def write_run(build, tests):
    """As ctest does; of tests that were not run its log says that they passed."""
    (build / "Testing" / "Temporary").mkdir(parents=True, exist_ok=True)
    root = xml.etree.ElementTree.Element("testsuite")
    log = f"Start testing: Nov 22 13:06 UTC\n{'-' * 58}\n"
    for number, (name, program, status, reason, output) in enumerate(tests, 1):
        case = xml.etree.ElementTree.SubElement(root, "testcase", name=name, status=status)
        if status == "notrun":
            xml.etree.ElementTree.SubElement(case, "skipped", message=reason)
        place = f"{number}/{len(tests)}"
        log += (f'{place} Testing: {name}\n{place} Test: {name}\nCommand: "{program}" "an argument"\nDirectory: /b\n'
                f'"{name}" start time: Nov 22 13:06 UTC\nOutput:\n{"-" * 58}\n{output}<end of output>\n'
                f"Test time =   0.02 sec\n{'-' * 58}\nTest {'Failed' if status == 'fail' else 'Passed'}.\n"
                f'"{name}" end time: Nov 22 13:06 UTC\n"{name}" time elapsed: 00:00:00\n{"-" * 58}\n\n')
    xml.etree.ElementTree.ElementTree(root).write(build / "Testing" / "tests.xml")
    (build / "Testing" / "Temporary" / "LastTest.log").write_text(log + "End testing: Nov 22 13:07 UTC\n")


def wrong_counts():
    binaries = [(f"room/{i}", "/b/tests/bucketwise_room_tests", "run" if well else "fail", "", output)
                for i, (output, well, _) in enumerate(OF_BINARIES)]
    scripts = [(f"what a {status} script, {reason}, checks", "/usr/bin/python3", status, reason, "All is well\n")
               for status, reason, _ in OF_SCRIPTS]
    expected = [*(count for *_, count in OF_BINARIES), *(count for *_, count in OF_SCRIPTS)]
    with tempfile.TemporaryDirectory() as name:
        build = Path(name)
        for tests, wanted in [*(([test], count) for test, count in zip(binaries + scripts, expected)),
                              (binaries + scripts, sum(expected, Count()))]:
            write_run(build, tests)
            if (got := count_of(build)) != wanted:
                yield f"{tests}: expected {wanted}, got {got}"
        earlier = (build / "Testing" / "tests.xml").read_text()
        write_run(build, binaries[:1])
        (build / "Testing" / "tests.xml").write_text(earlier)
        try:
            yield f"files of different runs: expected an error, got {count_of(build)}"
        except ValueError:
            pass


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        wrong = [*wrong_counts()]
        print("\n".join(wrong) or f"{len(OF_BINARIES) + len(OF_SCRIPTS)} made-up runs are counted right")
        sys.exit(1 if wrong else 0)
    try:
        count = count_of(Path(sys.argv[1]))
    except (OSError, ValueError, xml.etree.ElementTree.ParseError) as error:
        print(f"count_tests: {error}", file=sys.stderr)
        count = Count(failed=1)
    print(count)
    sys.exit(0 if count.failed == 0 and count.passed > 0 else 1)


if __name__ == "__main__":
    main()
