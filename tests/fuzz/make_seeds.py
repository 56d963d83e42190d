"""Collects the seeds of scenario_fuzzer: every scenario that ships, every file of the seeds folder, and the documents that
hold every key.

usage: make_seeds.py SCENARIOS_FOLDER SEEDS_FOLDER DOCUMENTS_FOLDER OUTPUT_FOLDER

Link files are written into the scenarios that name them: the fuzzer reads no files, and their keys are
part of what it explores.
"""

import json
import pathlib
import shutil
import sys


def link_inline(link, folder):
    """A link with the files it names in place of their names, which are relative to `folder`; presets keep theirs."""
    if isinstance(link, str):
        file = folder / link
        if not file.is_file():
            return link
        return link_inline(json.loads(file.read_text()), file.parent)
    tiers = {tier: link_inline(link[tier], folder) for tier in ("intra", "inter") if tier in link}
    return {**link, **tiers}


def scenario_files(folder):
    return [file for file in sorted(folder.glob("*.json")) if not file.name.endswith(".schema.json")]


def main():
    scenarios, seeds, documents, output = map(pathlib.Path, sys.argv[1:])
    output.mkdir(parents=True, exist_ok=True)
    for file in scenario_files(scenarios):
        scenario = json.loads(file.read_text())
        scenario["cluster"]["link"] = link_inline(scenario["cluster"]["link"], scenarios)
        # Short, as the fuzzer changes short inputs faster.
        (output / file.name).write_text(json.dumps(scenario, separators=(",", ":")))
    for file in [*sorted(seeds.iterdir()), *sorted(documents.iterdir())]:
        shutil.copyfile(file, output / file.name)


if __name__ == "__main__":
    main()
