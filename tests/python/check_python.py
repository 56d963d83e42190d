#!/usr/bin/env python3
"""The Python package says what the program says.

usage: check_python.py PROGRAM REPOSITORY

Uses the package of the source tree with PROGRAM, and nothing that does not come with Python.
"""

import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

PROGRAM, ROOT = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
os.environ["BUCKETWISE"] = PROGRAM
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True
import bucketwise  # noqa: E402
from bucketwise import _picture, _program  # noqa: E402

TWO_BUCKETS = "scenarios/two_buckets.json"


def printed(*arguments):
    return subprocess.run([PROGRAM, *arguments], check=True, capture_output=True, text=True).stdout


def in_fresh_python(code, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=environment, check=False)


def options_of(command):
    """Those that its --help names, as Python's parameters are called."""
    return {name.replace("-", "_") for name in re.findall(r"^  (?:-\w \[ )?--([a-z-]+)", printed(command, "--help"), re.M)}


def parameters_of(function):
    return {name.rstrip("_") for name in inspect.signature(function).parameters} - {"scenario"}


class PredictTest(unittest.TestCase):
    def test_a_prediction_has_what_the_program_prints_as_json(self):
        document = json.loads(printed("predict", TWO_BUCKETS, "--json", "-"))
        prediction = bucketwise.predict(TWO_BUCKETS)
        self.assertEqual(prediction.raw, document)
        for name in ("scenario", "strategy", "ranks", "link", "keep_default", "notes"):
            self.assertEqual(getattr(prediction, name), document[name], name)
        self.assertEqual(list(prediction.plateau_mib), document["plateau_mib"])
        self.assertEqual(prediction.verdict.text, document["verdict"]["text"])
        self.assertEqual(prediction.verdict.advice, document["verdict"]["advice"])
        for plan, row in [(prediction.best, document["best"]), (prediction.default, document["default"]),
                          *zip(prediction.sweep, document["sweep"])]:
            for name in ("bucket_cap_mib", "buckets", "bucket_bytes", "step_ms", "forward_ms", "backward_ms",
                         "optimizer_ms", "communication_ms", "exposed_communication_ms"):
                self.assertEqual(getattr(plan, name), row[name], name)
            self.assertEqual(plan.raw, row)
        self.assertEqual(len(prediction.sweep), len(document["sweep"]))
        self.assertEqual(prediction.settings.keys(), document["settings"].keys())
        self.assertEqual(prediction.settings["pytorch_ddp"].typed, document["settings"]["pytorch_ddp"]["typed"])

    def test_a_scenario_may_be_what_a_file_holds(self):
        scenario = json.loads((ROOT / TWO_BUCKETS).read_text())
        self.assertEqual(bucketwise.predict(scenario), bucketwise.predict(ROOT / TWO_BUCKETS))

    def test_files_that_a_mapping_names_lie_beside_the_current_folder(self):
        scenario = json.loads((ROOT / TWO_BUCKETS).read_text())
        link = scenario["cluster"]["link"]
        expected = bucketwise.predict(scenario)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "links").mkdir()
            Path(folder, "links", "mine.json").write_text(json.dumps(link))
            scenario["cluster"]["link"] = "links/mine.json"
            before = os.getcwd()
            os.chdir(folder)
            try:
                self.assertEqual(bucketwise.predict(scenario), expected)
            finally:
                os.chdir(before)

    def test_a_scenario_that_shards_has_settings_of_sharding_in_place_of_caps(self):
        sharded = "scenarios/llama7b_fsdp_64xh100.json"
        document = json.loads(printed("predict", sharded, "--json", "-", "--compare-strategies", "ddp,fsdp"))
        prediction = bucketwise.predict(sharded, compare_strategies=["ddp", "fsdp"])
        self.assertEqual(prediction.raw, document)
        for plan, row in [(prediction.best, document["best"]), (prediction.default, document["configured"]),
                          *zip(prediction.sweep, document["sweep"]), *zip(prediction.frontier, document["frontier"])]:
            for name in ("sharding", "groups", "step_ms", "forward_ms", "sharded_peak_bytes"):
                self.assertEqual(getattr(plan, name), row[name], name)
            self.assertEqual(plan.memory_bytes, row["memory"]["most_bytes"])
            self.assertIsNone(plan.bucket_cap_mib)
        self.assertEqual(len(prediction.frontier), len(document["frontier"]))
        self.assertFalse(prediction.keep_default)
        self.assertEqual(prediction.plateau_mib, (None, None))
        self.assertIn("fully_shard(model", prediction.settings["PyTorch"].typed)
        self.assertIn("fully_shard(model", prediction._repr_html_())
        dtypes = {key: value for key, value in prediction.default.sharding.items() if key.endswith("dtype")}
        kept = bucketwise.predict(sharded, set={"/sync/sharding": {**prediction.best.sharding, **dtypes}})
        self.assertTrue(kept.keep_default)

    def test_options_are_those_of_the_command_line(self):
        self.assertEqual(parameters_of(bucketwise.predict), options_of("predict") - {"help", "json", "details"})
        self.assertEqual(parameters_of(bucketwise.sweep), options_of("sweep") - {"help", "format", "output"})

    def test_options_reach_the_program(self):
        typed = printed("predict", TWO_BUCKETS, "--json", "-", "--bucket-cap", "1MiB,25MiB", "--strategy", "ddp", "--set",
                        "/cluster/ranks=4", "--set", "/sync/views=false", "--set", "/sync/comm_hook=bf16", "--for",
                        "lightning,accelerate", "--plan", "optimal")
        prediction = bucketwise.predict(TWO_BUCKETS, bucket_cap=["1MiB", "25MiB"], strategy="ddp",
                                        set={"/cluster/ranks": 4, "/sync/views": False, "/sync/comm_hook": "bf16"},
                                        for_=["lightning", "accelerate"], plan="optimal")
        self.assertEqual(prediction.raw, json.loads(typed))
        self.assertIn("optimal", prediction.raw)
        by_name = bucketwise.predict(TWO_BUCKETS, link="eth-10g")
        self.assertEqual(by_name.link, json.loads(printed("predict", TWO_BUCKETS, "--json", "-", "--link", "eth-10g"))["link"])
        of_model = bucketwise.predict("resnet50", ranks=8, link="nvlink-h100-8", batch=32)
        typed = printed("predict", "resnet50", "--ranks", "8", "--link", "nvlink-h100-8", "--batch", "32", "--json", "-")
        self.assertEqual(of_model.raw, json.loads(typed))
        link = json.loads((ROOT / TWO_BUCKETS).read_text())["cluster"]["link"]
        link["name"] = "mine"
        self.assertEqual(bucketwise.predict(TWO_BUCKETS, link=link).link, "mine")

    def test_a_flag_is_a_flag(self):
        self.assertNotIn("percentiles", bucketwise.predict(TWO_BUCKETS, percentiles=False).raw)
        drawn = bucketwise.predict("scenarios/cs336_xl_100k.json", percentiles=True, draws=10)
        self.assertEqual(drawn.raw["percentiles"]["draws"], 10)

    def test_what_is_refused_is_an_error_in_the_programs_words(self):
        with self.assertRaises(bucketwise.InputError) as raised:
            bucketwise.predict({"name": "nothing else"})
        self.assertEqual(str(raised.exception), "scenario: expected the key workload, got an object without it")
        self.assertIsInstance(raised.exception, ValueError)
        scenario = json.loads((ROOT / TWO_BUCKETS).read_text())
        with self.assertRaisesRegex(bucketwise.InputError, r"^link: /segments: "):
            bucketwise.predict(scenario, link={"name": "x", "algorithm": "ring", "segments": []})
        with self.assertRaisesRegex(bucketwise.InputError, r"^nowhere\.json: "):
            bucketwise.predict("nowhere.json")

    def test_what_fails_is_another_error(self):
        with self.assertRaisesRegex(RuntimeError, "No space left on device"):
            bucketwise.predict(TWO_BUCKETS, trace="/dev/full")

    def test_no_descriptor_is_left_open(self):
        before = os.listdir("/proc/self/fd")
        for scenario in ({"name": "refused"}, {"name": object()}, json.loads((ROOT / TWO_BUCKETS).read_text())):
            try:
                bucketwise.predict(scenario)
            except (bucketwise.InputError, TypeError):
                pass
        self.assertEqual(os.listdir("/proc/self/fd"), before)


class PictureTest(unittest.TestCase):
    def test_a_prediction_shows_itself_with_a_picture(self):
        for name in sorted((ROOT / "scenarios").glob("*.json")):
            if not name.name.endswith(".schema.json"):
                prediction = bucketwise.predict(name)
                page = xml.etree.ElementTree.fromstring(prediction._repr_html_())
                self.assertIn(prediction.verdict.text, "".join(page.itertext()), name)

    def test_the_line_goes_through_the_best_and_the_default(self):
        prediction = bucketwise.predict("scenarios/compare_ddp_core.json")
        svg = "{http://www.w3.org/2000/svg}"
        picture = xml.etree.ElementTree.fromstring(_picture.picture_of(prediction))
        corners = re.findall(r"H([\d.]+)V([\d.]+)", picture.find(f"{svg}path[@fill='none'][@stroke='{_picture.BLUE}']").get("d"))
        heights = {float(y) for _, y in corners}
        best = picture.find(f"{svg}circle[@fill='{_picture.GREEN}']")
        self.assertIn(float(best.get("cy")), heights)
        # The fastest is the lowest, and SVG counts downwards. The advised one is as low here.
        self.assertEqual(float(best.get("cy")), max(heights))
        self.assertGreater(float(best.get("cy")), float(picture.find(f"{svg}circle[@fill='{_picture.GREY}']").get("cy")))

    def test_settings_of_sharding_stand_over_their_memory(self):
        prediction = bucketwise.predict("scenarios/llama7b_fsdp_64xh100.json")
        picture = xml.etree.ElementTree.fromstring(_picture.picture_of(prediction))
        svg = "{http://www.w3.org/2000/svg}"
        places = {colour: float(picture.find(f"{svg}circle[@fill='{colour}']").get("cx"))
                  for colour in (_picture.GREEN, _picture.GREY)}
        # The best keeps parameters after forward, which takes more memory than the scenario's own.
        self.assertGreater(places[_picture.GREEN], places[_picture.GREY])
        self.assertIn("memory", picture.get("aria-label"))
        self.assertIn(f"best {prediction.best.memory_bytes / 2**30:.4g} GiB", "".join(picture.itertext()))

    def test_names_are_text_in_it(self):
        scenario = json.loads((ROOT / TWO_BUCKETS).read_text())
        scenario["name"] = "<script>alert(1)</script>"
        self.assertNotIn("<script>", bucketwise.predict(scenario)._repr_html_())

    def test_a_strategy_without_caps_has_no_picture(self):
        prediction = bucketwise.predict(TWO_BUCKETS, strategy="flat")
        self.assertNotIn("<svg", prediction._repr_html_())
        self.assertIn(prediction.verdict.text, prediction._repr_html_())


class SweepTest(unittest.TestCase):
    def test_rows_are_those_that_the_program_writes(self):
        typed = printed("sweep", TWO_BUCKETS, "--vary", "/cluster/ranks=2..8:x2", "--vary", "/sync/views=true,false",
                        "--vary", "/sync/comm_hook=none,bf16", "--bucket-cap", "best")
        rows = bucketwise.sweep(TWO_BUCKETS, bucket_cap="best", vary={
            "/cluster/ranks": "2..8:x2", "/sync/views": [True, False], "/sync/comm_hook": ["none", "bf16"]})
        self.assertEqual(rows, [json.loads(line) for line in typed.splitlines()])
        self.assertEqual(len(rows), 12)


class ProgramTest(unittest.TestCase):
    def test_importing_it_imports_nothing_else(self):
        code = ("import sys; before = set(sys.modules); import bucketwise; "
                "print(*(name for name in set(sys.modules) - before if name != 'bucketwise'))")
        done = in_fresh_python(code)
        self.assertEqual((done.stdout.strip(), done.returncode), ("", 0), done.stderr)

    def test_what_it_exports_is_there(self):
        for name in set(bucketwise.__all__) - {"__version__"}:  # which an installed one has
            self.assertTrue(callable(getattr(bucketwise, name)), name)
        self.assertFalse(hasattr(bucketwise, "nothing"))

    def test_the_program_is_the_one_that_is_named(self):
        self.assertEqual(_program.program(), PROGRAM)
        code = "from bucketwise._program import program; program()"
        done = in_fresh_python(code, BUCKETWISE="/nowhere")
        self.assertIn("FileNotFoundError: BUCKETWISE: expected a program that may be run, got /nowhere", done.stderr)

    def test_the_program_is_looked_for_in_path_and_a_script_is_not_it(self):
        code = "from bucketwise._program import program; print(program())"
        with tempfile.TemporaryDirectory() as folder:
            script, real = Path(folder, "script"), Path(folder, "real")
            for place in (script, real):
                place.mkdir()
            (script / "bucketwise").write_text("#!/bin/sh\n")
            (script / "bucketwise").chmod(0o755)
            done = in_fresh_python(code, BUCKETWISE="", PATH=str(script))
            self.assertRegex(done.stderr, r"FileNotFoundError: the program bucketwise is neither at .* nor in PATH")
            (real / "bucketwise").symlink_to(PROGRAM)
            done = in_fresh_python(code, BUCKETWISE="", PATH=f"{script}{os.pathsep}{real}")
            self.assertEqual(done.stdout.strip(), str(real / "bucketwise"), done.stderr)

    def test_the_command_becomes_the_program(self):
        code = "import sys; sys.argv[1:] = ['predict', 'nowhere.json']; import bucketwise.__main__"
        done = in_fresh_python(code)
        typed = subprocess.run([PROGRAM, "predict", "nowhere.json"], capture_output=True, text=True, check=False)
        self.assertEqual((done.stdout, done.stderr, done.returncode), (typed.stdout, typed.stderr, 2))


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main(argv=sys.argv[:1])
