"""Parts of the checks of bucketwise.torch: their start, runs of the program, an emulated GPU, what a training is left as."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]

from on_ranks import is_there, run_on_ranks  # noqa: E402

RANKS = 2


def main(usage, check, probe="True"):
    """Runs check(rank, ranks, program, folder) on two ranks over Gloo on loopback. Exits with 77 where Python has no
    PyTorch for which the expression `probe` is true."""
    name = Path(sys.argv[0]).stem
    if not is_there("torch"):
        print(f"{name}: skipped: PyTorch is not installed for this Python")
        sys.exit(77)
    code = f"import torch.distributed.fsdp as fsdp, sys; sys.exit(not ({probe}))"
    if subprocess.run([sys.executable, "-c", code]).returncode != 0:
        print(f"{name}: skipped: PyTorch here does not have {probe}")
        sys.exit(77)
    if len(sys.argv) != 3:
        sys.exit(usage)
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.abspath(sys.argv[1])
        run_on_ranks(check, RANKS, program, folder, variables={"BUCKETWISE": program}, longest_s=300)


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def predict(program, scenario, *options):
    return json.loads(run(program, "predict", scenario, "--json", "-", *options))


def read_json(file):
    return json.loads(Path(file).read_text())


def read_lines(file):
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def stated(document):
    """The texts of a scenario's caveats."""
    return [caveat if isinstance(caveat, str) else caveat["text"] for caveat in document.get("caveats", [])]


def said_by(action):
    """Returns the result and the text on standard error."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        result = action()
    return result, said.getvalue()


def buckets_of(ddp):
    """Bytes of DDP's buckets, in launch order."""
    return [int(size) for size in ddp._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(",")]


def check_no_trace(torch, model, original):
    assert torch.autograd.backward is original
    for module in model.modules():
        assert not module._forward_pre_hooks and not module._forward_hooks
    for parameter in model.parameters():
        assert not parameter._backward_hooks and not getattr(parameter, "_post_accumulate_grad_hooks", None)


def sleeping_function(torch, forward_s, backward_s):
    """Sleeps each way, and changes nothing."""

    class Sleep(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            time.sleep(forward_s)
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            time.sleep(backward_s)
            return gradient

    return Sleep.apply


class Device:
    """When the host has last waited for it, how often, and when it last made an event."""

    def __init__(self):
        self.waits, self.waited, self.made = 0, 0.0, 0.0

    def wait(self):
        self.waits += 1
        self.waited = time.perf_counter()


@contextlib.contextmanager
def emulated_gpu(torch):
    """Emulates streams and events of a GPU: no event may be read before the host has waited for it. Gives a Device."""
    import bucketwise.torch.watch as watch

    device = Device()

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing
            self.moment, self.is_waited_for, device.made = None, False, time.perf_counter()

        def record(self):
            self.moment = time.perf_counter()

        def synchronize(self):
            assert self.moment is not None
            self.is_waited_for = True

        def elapsed_time(self, later):
            assert later.is_waited_for or later.moment < device.waited, "read before the device was waited for"
            return 1e3 * (later.moment - self.moment)

    class Stream:
        def wait_stream(self, other):
            assert isinstance(other, Stream)

        def wait_event(self, event):
            assert event.moment is not None

    emulated = {(watch, "HostClock"): watch.CudaClock, (torch.cuda, "Event"): Event, (torch.cuda, "Stream"): Stream,
                (torch.cuda, "current_stream"): Stream, (torch.cuda, "stream"): lambda _: contextlib.nullcontext(),
                (torch.cuda, "synchronize"): device.wait, (torch.cuda, "is_current_stream_capturing"): lambda: False,
                (torch.cuda, "mem_get_info"): lambda: (1 << 30, 1 << 30),
                (torch.cuda, "get_device_name"): lambda: "emulated", (torch.cuda.nccl, "version"): lambda: (2, 28, 3)}
    real = {(place, name): getattr(place, name) for place, name in emulated}
    for values in (emulated, real):
        for (place, name), value in values.items():
            setattr(place, name, value)
        if values is emulated:
            yield device
