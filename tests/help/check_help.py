#!/usr/bin/env python3
"""Checks that shells complete and the manual page shows the commands and options of --help, and that its examples run.

usage: check_help.py BUCKETWISE REPOSITORY

Completion is asked of a real bash, and of zsh where it is installed. Every example's options and files are looked up;
examples that need no real rank, no GPU and no trace run, in an empty folder, where scenarios/ are those that ship.
"""

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

failures = []


def check(holds, text):
    if not holds:
        failures.append(text)


def output_of(command, **settings):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **settings)
    check(done.returncode == 0, f"{command}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


# --- what --help says ---------------------------------------------------------------------------------------


class Command:
    def __init__(self, words, text):
        self.words = words
        self.options = {}  # by name: its letter, whether it takes a value, its default
        for letter, name, rest in re.findall(r"^  (?:-(\w) \[ )?--([a-z][a-z-]*)(.*)$", text, re.MULTILINE):
            default = re.search(r"\(=(\S*)\)", rest)
            self.options[name] = (letter, bool(re.match(r"(?: \])? arg", rest)), default.group(1) if default else "")
        block = re.search(r"^examples:\n((?:  .*\n)+)", text, re.MULTILINE)
        check(block, f"bucketwise {words}: expected examples in --help, got none")
        self.examples = re.sub(r"\\\n *", "", block.group(1)).splitlines() if block else []

    def spelled(self):
        """Every way to write an option: --output and -o."""
        return {f"--{name}" for name in self.options} | {f"-{letter}" for letter, _, _ in self.options.values() if letter}


def listed(text):
    block = re.search(r"^(?:commands|what):\n((?:  \S+ +.*\n)+)", text, re.MULTILINE)
    return [line.split()[0] for line in block.group(1).splitlines()] if block else []


def read_commands(program):
    top = output_of([program, "--help"])
    commands, groups = [], {}
    for word in listed(top):
        text = output_of([program, word, "--help"])
        groups[word] = listed(text)
        if not groups[word]:
            commands.append(Command(word, text))
        else:
            check("examples:\n" in text, f"bucketwise {word}: expected examples in --help, got none")
        for inner in groups[word]:
            commands.append(Command(f"{word} {inner}", output_of([program, word, inner, "--help"])))
    return commands, groups


# --- bash ---------------------------------------------------------------------------------------------------


class Bash:
    def __init__(self, program, folder):
        self.file = folder.parent / "completion.bash"
        self.file.write_text(output_of([program, "completion", "bash"]))
        self.folder = folder
        self.environment = dict(os.environ, PATH=f"{Path(program).parent}:{os.environ['PATH']}")

    def completed(self, *words):
        """Candidates for the last of the words, parted as readline parts them."""
        script = ('source "$0"; COMP_WORDS=(bucketwise "$@"); COMP_CWORD=$#; _bucketwise; '
                  '((${#COMPREPLY[@]} == 0)) || printf "%s\\n" "${COMPREPLY[@]}"')
        return output_of(["bash", "--norc", "-uc", script, str(self.file), *words], cwd=self.folder,
                         env=self.environment).splitlines()


def check_bash(program, commands, groups, folder):
    bash = Bash(program, folder)
    check(set(bash.completed("")) == {*groups, "--help", "--version"}, f"bash: commands {bash.completed('')}")
    for group, inner in groups.items():
        if inner:
            check(set(bash.completed(group, "")) == {*inner, "--help"}, f"bash: {group} {bash.completed(group, '')}")
    for command in commands:
        offered = bash.completed(*command.words.split(), "-")
        check(sorted(offered) == sorted(command.spelled()), f"bash: {command.words} -: {offered}")
        for name, (letter, takes_value, default) in command.options.items():
            if not takes_value:
                continue
            offered = bash.completed(*command.words.split(), f"--{name}", "")
            if default and offered:
                several = default.split(",")
                check(set(several) <= set(offered), f"bash: {command.words} --{name}: no {default} in {offered}")
            if letter:
                check(bash.completed(*command.words.split(), f"-{letter}", "") == offered, f"bash: -{letter} of {name}")

    def expect(expected, *words):
        got = sorted(bash.completed(*words))
        check(got == sorted(expected), f"bash: {words}: expected {sorted(expected)}, got {got}")

    for name in ("a file.json", "bert.json"):
        (folder / name).write_text("{}")
    expect(["predict"], "pre")
    expect(["bench"], "be")
    expect(["compare-ddp"], "bench", "co")
    expect(["nccl"], "measure", "--backend", "n")
    expect(["nccl"], "measure", "--backend", "=", "n")
    expect(["gloo", "nccl"], "measure", "s.json", "--backend", "=")
    expect(["allreduce,compute", "allreduce,contention"], "measure", "--protocols", "allreduce,co")
    expect(["--strategy", "--sequence", "--set"], "predict", "s.json", "--s")
    expect(["a file.json"], "predict", "a")
    expect(["a file.json"], "predict", "--percentiles", "a")  # takes no value
    expect(["a file.json"], "predict", "--json", "a")
    expect(["ib-hdr-200", "ib-ndr-400", "ib-ndr-400-b200"], "link", "show", "ib-")
    expect(["bert-base", "bert-large", "bert.json"], "import", "kineto", "--model", "ber")
    expect(["jsonl"], "sweep", "--format", "j")
    expect(["bash", "zsh"], "completion", "")
    expect([], "no-such-command", "")
    expect([], "bench", "no-such-bench", "")
    expect([], "link", "list", "a")
    # The program takes its candidates.
    for option, scenario in (("--strategy", "two_buckets.json"), ("--link", "two_buckets.json")):
        for value in set(bash.completed("predict", option, "")) - set(os.listdir(folder)):
            output_of([program, "predict", f"scenarios/{scenario}", option, value], cwd=folder)
    for shape in ("list", "show"):
        for value in bash.completed("link", shape, "--format", ""):
            words = [program, "link", shape, "--format", value]
            output_of(words if shape == "list" else [*words, "eth-10g"])


# --- zsh and the manual page ------------------------------------------------------------------------------------


def check_zsh(program, folder):
    """zsh has --option=value in one word, and candidates keep what stands before."""
    file = folder / "_bucketwise"
    file.write_text(output_of([program, "completion", "zsh"]))
    if shutil.which("zsh"):
        output_of(["zsh", "-n", str(file)])
    check(output_of([program, "complete", "sweep", "--format=j"]) == "--format=jsonl\n", "zsh: --format=j")


def check_manual(program, commands, groups, folder, root):
    file = folder / "bucketwise.1"
    file.write_text(output_of([program, "man"]))
    plain = file.read_text()
    for typed, sign in (("\\-", "-"), ("\\(aq", "'"), ("\\(ha", "^"), ("\\(ti", "~"), ("\\(ga", "`"), ("\\&", ""), ("\\e", "\\")):
        plain = plain.replace(typed, sign)
    sections = re.findall(r'^\.SH "?([A-Z ]+)"?$', plain, re.MULTILINE)
    check(sections == ["NAME", "COMMANDS", "FILES", "EXIT STATUS", "ENVIRONMENT"], f"man: sections {sections}")
    for words in ("", *groups, *(command.words for command in commands)):
        check(output_of([program, *words.split(), "--help"]) in plain, f"man: bucketwise {words}: not its --help")
    for source in [*root.glob("cli/*.[ch]*"), *root.glob("hw/**/*.[ch]*")]:
        for variable in re.findall(r'"(BUCKETWISE_[A-Z_]+)"', source.read_text()):
            check(variable in plain, f"man: expected {variable} of {source.name} under ENVIRONMENT")
    environment = dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="80")
    for tool in (["groff", "-man", "-Tutf8", "-ww"], ["man", "--warnings", "-l"]):
        if shutil.which(tool[0]):
            done = subprocess.run([*tool, str(file)], capture_output=True, text=True, env=environment)
            check(done.returncode == 0 and not done.stderr, f"{tool}: {done.stderr}")


# --- examples -----------------------------------------------------------------------------------------------

CONFIG = ('{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 64, "n_head": 2, '
          '"n_positions": 2048, "vocab_size": 1000}')


def needs_more(example, words):
    """Real ranks, GPUs, a profiler's trace, or a dump of that model."""
    starts_ranks = words.split()[0] in ("measure", "validate", "prove") or "torchrun" in example
    measures = words.startswith("bench") and ("--simulate" not in example or "--backend" in example)
    of_model = words == "import flight-recorder" and "--model" in example
    return starts_ranks or measures or of_model or words in ("import kineto", "import nsys", "diagnose") or ("man -l" in example and not shutil.which("man"))


def nccl_tests_log(ranks, program=None):
    """As from a nccl-tests that prints neither hosts nor ranks; busbw is algbw 2(p-1)/p, of other programs half of it,
    and these count one rank's elements."""
    text = f"# Collective test starting: {program}\n" if program else ""
    parts = ranks if program else 1
    rounds = 1 if program else 2
    redop = "none" if program == "all_gather_perf" else "sum"
    text += "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
    for size, us in ((1024, 20.0), (1 << 20, 40.0), (1 << 26, 700.0)):
        algorithm = size / us / 1e3
        numbers = f"{us:.2f} {algorithm:.2f} {algorithm * rounds * (ranks - 1) / ranks:.2f} 0"
        text += f"  {size} {size // 4 // parts} float {redop} -1 {numbers} {numbers}\n"
    return text


def prepare(root, folder):
    """The files that examples speak of, as earlier ones would have written them."""
    logs = root / "tests" / "fuzz" / "nccl_tests_seeds"
    traces = root / "tests" / "data" / "traces"
    run = root / "tests" / "data" / "validation" / "transformer_1gbit_1" / "measurements.jsonl"
    copies = {"link.json": run.parent / "link.json",
              "all_reduces.jsonl": root / "results" / "pytorch_advice" / "perceptron" / "all_reduces.jsonl",
              "captured.json": root / "results" / "pytorch_advice" / "perceptron" / "captured.json",
              "measurements.jsonl": run, "on_2_ranks.jsonl": run, "on_4_ranks.jsonl": root / "results" / "four_ranks_1gbit.jsonl",
              "nccl_trace_rank_0": traces / "fr_ddp_rank0.pickle.gz", "nccl_trace_rank_1": traces / "fr_ddp_rank1.pickle.gz",
              "execution_trace.json": traces / "execution_trace.json.gz",
              "rank0.et": root / "tests" / "fuzz" / "chakra_seeds" / "messages.et",
              "all_reduce.log": logs / "new.txt", "all_reduce.json": logs / "version3.json"}
    for name, source in copies.items():
        shutil.copy(source, folder / name)
    (folder / "trace.json").write_bytes(gzip.decompress((traces / "ddp.json.gz").read_bytes()))
    for name, ranks in (("one_node.log", 8), ("two_nodes.log", 16)):
        (folder / name).write_text(nccl_tests_log(ranks))
    for program in ("all_gather", "reduce_scatter"):
        (folder / f"{program}.log").write_text(nccl_tests_log(2, f"{program}_perf"))
    all_reduces = (folder / "all_reduces.jsonl").read_text()
    for kind in ("allreduce", "allgather", "reducescatter"):
        (folder / f"{kind}.jsonl").write_text(re.sub(r'"kind": ?"allreduce"', f'"kind":"{kind}"', all_reduces))
    (folder / "config.json").write_text(CONFIG)
    (folder / "my-model").mkdir()
    (folder / "my-model" / "config.json").write_text(CONFIG)
    (folder / "ds_config.json").write_text('{"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e7}}')
    (folder / "train.py").write_text("model = DistributedDataParallel(model, bucket_cap_mb=50)\n")
    rows = [(3, 471.87), (6, 471.91), (9, 475.78), (12, 477.68), (15, 473.82), (18, 480.49), (21, 473.28), (24, 478.61)]
    (folder / "steps.csv").write_text("bucket_cap_mib,backward_ms\n" + "".join(f"{c},{t}\n" for c, t in rows))
    for place in (".local/share/bash-completion/completions", ".zfunc"):
        (folder / place).mkdir(parents=True)


def check_words(example, command, root):
    words = shlex.split(example.split("bucketwise " + command.words, 1)[-1].split(" > ")[0].split(" | ")[0].rstrip(")"))
    for word in words:
        option = word.split("=")[0]
        check(not re.match(r"--?[a-z]", option) or option in command.spelled(), f"{example}: no option {option}")
        if word.startswith("scenarios/"):
            check((root / word).is_file(), f"{example}: no file {word}")


def check_examples(program, commands, folder, root):
    prepare(root, folder)
    (folder / "bin").mkdir()
    (folder / "bin" / "bucketwise").symlink_to(program)
    environment = dict(os.environ, HOME=str(folder), PATH=f"{folder / 'bin'}:{os.environ['PATH']}", LC_ALL="C.UTF-8")
    by_words = {command.words: command for command in commands}
    ran = 0
    for command in commands:
        for example in command.examples:
            typed = [words for words in by_words if f"bucketwise {words}" in example]
            check(typed, f"{example}: expected a command")
            if not typed:
                continue
            check_words(example, by_words[max(typed, key=len)], root)
            if not needs_more(example, max(typed, key=len)):
                output_of(["bash", "-euo", "pipefail", "-c", example], cwd=folder, env=environment)
                ran += 1
    check(ran > 25, f"expected to run more than 25 examples, ran {ran}")
    return ran


def check_refusals(program):
    for words in (["completion"], ["completion", "tcsh"], ["completion", "bash", "zsh"], ["man", "x"], ["man", "--x"],
                  ["link"], ["link", "shows"], ["link", "list", "x"], ["bench", "x"], [], ["x"], ["import"]):
        done = subprocess.run([program, *words], capture_output=True, text=True)
        fine = done.returncode == 2 and not done.stdout and re.fullmatch(r"bucketwise: .*\n", done.stderr)
        check(fine, f"{words}: exit code {done.returncode}, {done.stderr}")
    for words in (["man"], ["completion", "bash"], ["predict", "--help"], ["bench", "--help"], ["--help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([program, *words], stdout=full, stderr=subprocess.PIPE, text=True)
        check(done.returncode == 1 and "cannot write" in done.stderr, f"{words} > /dev/full: {done.returncode}")


def main():
    program, root = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    commands, groups = read_commands(program)
    check(len(commands) > 15, f"expected more than 15 commands, got {len(commands)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("bash", "other", "examples"):
            (folder / part).mkdir()
        check_bash(program, commands, groups, folder / "bash")
        check_zsh(program, folder / "other")
        check_manual(program, commands, groups, folder / "other", root)
        ran = check_examples(program, commands, folder / "examples", root)
    check_refusals(program)
    print("\n".join(failures))
    unseen = [tool for tool in ("zsh", "groff", "man") if not shutil.which(tool)]
    print(f"{len(commands)} commands, {sum(len(c.options) for c in commands)} options, {ran} examples run; "
          f"{len(failures)} failures" + (f"; not installed: {', '.join(unseen)}" if unseen else ""))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
