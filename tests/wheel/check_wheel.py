#!/usr/bin/env python3
"""The wheel is all that it takes: made, and used by somebody who has neither a compiler nor this repository.

usage: check_wheel.py BUILD_FOLDER REPOSITORY

Makes the wheel (tools/make_wheel.sh) and looks into it and into the source distribution; installs it into a fresh
environment with nothing but the wheel at hand, and runs the program and the Python of it in an empty folder; then does
what a person does with a clone, `pip install .`. All but the first as an ordinary user: where this runs as root, as
nobody, in a home of its own. BUILD_FOLDER has the library that stands in for NCCL. Exits with 77 where pip cannot get
what makes wheels.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

SKIPPED = 77
MOST_BYTES = 15 * 1000 * 1000
NOBODY = 65534
COMPILERS = re.compile(r"(.*-)?(c\+\+|g\+\+|gcc|cc|clang|clang\+\+|cpp|ld|as|cmake|ninja|make|nvcc|ccache)(-[\d.]+)?$")
# Libraries that are opened at run time, and must not be inside.
NOT_INSIDE = ("libcuda", "libnccl", "libcublas", "libnvrtc", "libcudart")
ROOMS = ("cmake", "sim", "hw", "calibrate", "import", "bench", "cli", "scenarios", "plots", "python")
FILES = {"CMakeLists.txt", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"}

failures = []


def check(holds, text):
    if not holds:
        failures.append(text)


def run(*command, **settings):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1500, check=False,
                          **settings)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# --- what is made ---------------------------------------------------------------------------------------


def made_wheel(root, folder):
    done = subprocess.run([root / "tools" / "make_wheel.sh", folder], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(SKIPPED)
    if done.returncode != 0:
        sys.exit(done.stderr)
    wheels = [*folder.glob("*.whl")]
    check(len(wheels) == 1, f"make_wheel.sh: {wheels}")
    return wheels[0]


def version_of(root):
    return re.search(r"project\(bucketwise VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text())[1]


def check_wheel(wheel, root, folder):
    tag = re.fullmatch(rf"bucketwise-{re.escape(version_of(root))}-py3-none-manylinux_2_\d+_{os.uname().machine}\.whl",
                       wheel.name)
    check(tag, f"{wheel.name}: a name that pip does not take anywhere")
    check(wheel.stat().st_size <= MOST_BYTES, f"{wheel.name}: {wheel.stat().st_size} bytes")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        for info in opened.infolist():
            data = opened.read(info)
            if data.startswith(b"\x7fELF"):
                check(str(root).encode() not in data, f"{info.filename}: names a folder of this machine")
                file = Path(opened.extract(info, folder))
                check(".symtab" not in run("readelf", "--sections", "--wide", file), f"{info.filename}: not stripped")
    for name in names:
        check(not Path(name).name.startswith(NOT_INSIDE), f"{name}: is not to be in the wheel")
        check("__pycache__" not in name, f"{name}: is nothing to pass on")
    for file in [*(root / "scenarios").rglob("*"), *(root / "plots").rglob("*")]:
        if file.is_file() and "__pycache__" not in file.parts:
            check(f"bucketwise/share/bucketwise/{file.relative_to(root)}" in names, f"{file}: not in the wheel")
    for file in (root / "python" / "bucketwise").rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            check(str(file.relative_to(root / "python")) in names, f"{file}: not in the wheel")
    carried = [name for name in names if name.startswith("bucketwise.libs/libgloo")]
    check(carried, f"Gloo is not carried: {names}")
    if Path("/usr/share/doc/libgloo0/copyright").is_file():
        check(any(name.endswith("/licenses/libgloo0/copyright") for name in names), "Gloo's licence is not in the wheel")


def check_source_distribution(root, tools, folder):
    """The source distribution holds everything to build, and nothing else."""
    run(tools / "bin" / "python", "-c", f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})",
        cwd=root)
    archive, = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.split("/", 1)[1] for name in opened.getnames()}
    tracked = set(run("git", "ls-files", "-z", *ROOMS, *FILES, cwd=root).split("\0")) - {""}
    check(tracked <= inside, f"{archive.name} lacks {sorted(tracked - inside)[:5]}")
    others = {name for name in inside - {"PKG-INFO"} if name.split("/")[0] not in ROOMS and name not in FILES}
    check(not others, f"{archive.name} has {sorted(others)[:5]} besides")


def check_types(root, tools):
    """Checks the promise of py.typed for the package itself; its part for PyTorch is typed like PyTorch."""
    run(tools / "bin" / "pip", "install", "--quiet", "mypy")
    files = sorted((root / "python" / "bucketwise").glob("*.py"))
    done = subprocess.run([tools / "bin" / "python", "-m", "mypy", "--strict", "--cache-dir", os.devnull, *files],
                          capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"mypy: {done.stdout}")


# --- somebody with nothing ------------------------------------------------------------------------------


class Somebody:
    """An ordinary user, with a home, an empty folder, and a PATH on which there is no compiler."""

    def __init__(self, folder):
        self.folder = folder
        self.home = self.owned("home")
        self.away = self.owned("away")
        self.tools = folder / "bin"
        self.tools.mkdir()
        for place in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"):
            for file in sorted(Path(place).glob("*")):
                if not COMPILERS.fullmatch(file.name) and not (self.tools / file.name).is_symlink():
                    (self.tools / file.name).symlink_to(file)

    def owned(self, name):
        made = self.folder / name
        made.mkdir()
        if os.geteuid() == 0:
            os.chown(made, NOBODY, NOBODY)
        return made

    def prefix(self):
        if os.geteuid() != 0:
            return []
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all",
                "--bounding-set=-all"]

    def run(self, *command, path=None):
        how_to_reach_pip = {name: value for name, value in os.environ.items()
                            if name.lower().endswith("_proxy") or name.startswith(("PIP_", "SSL_"))}
        environment = {**how_to_reach_pip, "HOME": str(self.home), "TMPDIR": str(self.home), "LANG": "C.UTF-8",
                       "PATH": path or str(self.tools)}
        return run(*self.prefix(), *command, cwd=self.away, env=environment)


def system_python():
    """One that an ordinary user may run: root's own Python may lie in root's home."""
    return "/usr/bin/python3" if os.geteuid() == 0 and Path("/usr/bin/python3").exists() else sys.executable


class Environment:
    def __init__(self, somebody, name):
        self.somebody = somebody
        self.folder = somebody.owned(name)
        somebody.run(system_python(), "-m", "venv", self.folder)
        self.packages, = (self.folder / "lib").glob("python3*/site-packages")

        self.path = f"{self.folder / 'bin'}{os.pathsep}{somebody.tools}"

    def __call__(self, command, *arguments):
        return self.somebody.run(self.folder / "bin" / command, *arguments, path=self.path)

    def program(self, *arguments):
        return self("bucketwise", *arguments)


def check_program(of, version):
    away = of.somebody.away
    check(shutil.which("c++", path=str(of.somebody.tools)) is None, "there is a compiler on PATH")
    check(of.program("--version").startswith(f"bucketwise {version}\n"), "--version")
    check("best" in of.program("predict", "scenarios/resnet50_8xh100.json"), "predict")
    alone = json.loads(of.program("predict", "scenarios/two_buckets.json", "--json", "-"))
    as_module = json.loads(of("python", "-m", "bucketwise", "predict", "scenarios/two_buckets.json", "--json", "-"))
    check(alone == as_module, "python -m bucketwise predicts something else")
    of.program("measure", "scenarios/two_buckets.json", "--ranks", "2", "--rounds", "2", "--bucket-cap", "1MiB,3MiB",
               "--bytes", "64KiB,1MiB,2MiB", "-o", "measurements.jsonl")
    kinds = {json.loads(line)["kind"] for line in (away / "measurements.jsonl").read_text().splitlines()}
    check({"environment", "allreduce", "step"} <= kinds, f"measure on two ranks: {kinds}")
    of.program("validate", "scenarios/two_buckets.json", "--ranks", "2", "--rounds", "2", "--bucket-cap", "1MiB,3MiB",
               "--bytes", "64KiB,1MiB,2MiB", "-o", "validation")
    check("mape" in json.loads((away / "validation" / "comparison.json").read_text()), "validate")
    # A failure reaches the caller, in the program's words.
    done = subprocess.run([*of.somebody.prefix(), of.folder / "bin" / "bucketwise", "predict", "nothing.json"], cwd=away,
                          capture_output=True, text=True, check=False)
    check(done.returncode == 2 and done.stderr.startswith("bucketwise: nothing.json: "), f"exit code: {done}")


def check_shell(of):
    share = of.folder / "share"
    for file, command in (("bash-completion/completions/bucketwise", "bash"),
                          ("zsh/site-functions/_bucketwise", "zsh")):
        check((share / file).read_text() == of.program("completion", command),
              f"{file}: not what completion {command} prints")
    completed = of.somebody.run("bash", "-c", "source <(bucketwise completion bash) && complete -p bucketwise",
                                path=of.path)
    check("bucketwise" in completed, "bash completes nothing")
    page = share / "man" / "man1" / "bucketwise.1"
    check(page.read_text() == of.program("man"), f"{page}: not what man prints")
    if shutil.which("man"):
        found = of.somebody.run("man", "--where", "bucketwise", path=of.path)
        check(Path(found.strip()) == page, f"man bucketwise shows {found}")


PYTHON = """
import sys
before = set(sys.modules)
import bucketwise
more = {name for name in set(sys.modules) - before if not name.startswith("bucketwise")}
assert not more, f"importing bucketwise imports {more}"
assert bucketwise.__version__ == VERSION, bucketwise.__version__
prediction = bucketwise.predict("scenarios/two_buckets.json", bucket_cap=["1MiB", "25MiB"])
assert prediction.best.step_ms == min(one.step_ms for one in prediction.sweep)
rows = bucketwise.sweep("scenarios/two_buckets.json", vary={"/cluster/ranks": [2, 4]})
assert [row["/cluster/ranks"] for row in rows] == [2, 4], rows
"""


def check_python(of, version):
    of("python", "-c", PYTHON.replace("VERSION", repr(version)))


def check_nccl(of, stand_in):
    """Taken from the environment's own packages, before the system's, as PyTorch does."""
    place = of.packages / "nvidia" / "nccl" / "lib"
    of.somebody.run("mkdir", "-p", place)
    of.somebody.run("cp", stand_in, place)
    expected = f", NCCL 2.0.0 ({place.resolve() / stand_in.name})\n"
    check(expected in of.program("--version"), f"expected{expected}got {of.program('--version')}")


def check_clone(somebody, root, version):
    """Installs from a clone, which needs a compiler."""
    of = Environment(somebody, "by_clone")
    clone = somebody.folder / "clone"
    run("git", "clone", "--quiet", root, clone)
    if os.geteuid() == 0:
        run("chown", "--recursive", f"{NOBODY}:{NOBODY}", clone)
    somebody.run(of.folder / "bin" / "pip", "install", "--quiet", clone, "--config-settings",
                 "cmake.define.BUCKETWISE_CUDA=OFF", path="/usr/local/bin:/usr/bin:/bin")
    check(of.program("--version").startswith(f"bucketwise {version}\n"), "installed from a clone: --version")
    of.program("predict", "scenarios/two_buckets.json")
    check_python(of, version)


def main():
    build, root = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    version = version_of(root)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(folder.stat().st_mode | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        (folder / "made").mkdir()
        wheel = made_wheel(root, folder / "made")
        size = wheel.stat().st_size
        check_wheel(wheel, root, folder / "unpacked")
        check_source_distribution(root, root / "build" / "wheel_tools", folder / "made")
        check_types(root, root / "build" / "wheel_tools")
        somebody = Somebody(folder)
        of = Environment(somebody, "by_wheel")
        of("pip", "install", "--quiet", "--no-index", wheel)
        check_program(of, version)
        check_shell(of)
        check_python(of, version)
        for stand_in in (build / "tests" / "stand_ins" / "whole").glob("libnccl.so.*"):
            check_nccl(of, stand_in)
        check_clone(somebody, root, version)
    print("\n".join(failures))
    print(f"{len(failures)} failures; {wheel.name}, {size / 1e6:.1f} MB")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
