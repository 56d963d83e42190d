"""Processes of a script that meet over loopback, mostly two, and what they find of what a training leaves in a process."""

import socket
import subprocess
import sys
import time

RANKS = 2
LONGEST_S = 300


def run_both(script, arguments, folder):
    """Starts `script` with `arguments`, its rank, a port that is free and `folder`, once for each rank. Ends both once one
    fails. Returns an exit code, 0 if both end well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, script, *arguments]
    return code_of([subprocess.Popen([*map(str, command), str(rank), str(port), str(folder)]) for rank in range(RANKS)])


def code_of(ranks, longest_s=LONGEST_S):
    """Waits for processes, and ends all once one fails. Returns an exit code, 0 if all end well."""
    deadline = time.monotonic() + longest_s
    try:
        while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
            assert time.monotonic() < deadline, "ranks hang"
            time.sleep(0.1)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return max(abs(rank.returncode) for rank in ranks)


def check_no_trace(torch, model, original):
    assert torch.autograd.backward is original
    for module in model.modules():
        assert not module._forward_pre_hooks and not module._forward_hooks
    for parameter in model.parameters():
        assert not parameter._backward_hooks and not getattr(parameter, "_post_accumulate_grad_hooks", None)
