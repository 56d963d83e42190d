"""Runs a function of a script on several ranks, which are processes of this machine.

    found = run_on_ranks(function, 2, "some", ["arguments"])

calls function(rank, 2, "some", ["arguments"]) in two processes, each with the variables that torchrun sets, and returns
the list of what they return. Arguments and results travel as JSON. `function` is at the top level of its module.
"""

import importlib.util
import inspect
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path


def run_on_ranks(function, count, *arguments, prefixes=None, variables=None, grouped=True, longest_s=3600):
    """Returns the results by rank. Ends all ranks once one fails or after `longest_s`, and then exits with its code.

    prefixes: by rank, words before its command, such as those that enter a namespace. variables: more of the
    environment. grouped: ranks have joined a process group of Gloo before the function is called.
    """
    script = inspect.getfile(function)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "arguments.json").write_text(json.dumps(arguments))
        command = [sys.executable, __file__, script, function.__name__, folder, "grouped" if grouped else ""]
        port = free_ports(1)[0]
        running = [subprocess.Popen([*(prefixes[rank] if prefixes else []), *command], stdin=subprocess.PIPE,
                                    env={**os.environ, **environment(rank, count, port), **(variables or {})})
                   for rank in range(count)]
        code = ended(running, longest_s)
        if code != 0:
            print(f"{Path(script).name}: a rank failed", file=sys.stderr)
            sys.exit(code)
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(count)]


def is_there(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def environment(rank, count, port):
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
            "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def ended(running, longest_s):
    """Waits for processes, and ends all once one fails. Returns an exit code, 0 if all end well."""
    deadline = time.monotonic() + longest_s
    try:
        while any(rank.poll() is None for rank in running) and not any(rank.poll() for rank in running):
            assert time.monotonic() < deadline, "ranks hang"
            time.sleep(0.1)
    finally:
        for rank in running:
            rank.kill()
            rank.wait()
            rank.stdin.close()
    return max(abs(rank.returncode) for rank in running)


def imported(script):
    """The module of a script, which is not run as one."""
    sys.path.insert(0, str(Path(script).parent))
    specification = importlib.util.spec_from_file_location(Path(script).stem, script)
    module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def run_rank(script, name, folder, grouped):
    # Without the process that started it there is nobody left to report to.
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(1)), daemon=True).start()
    code = 1
    try:
        call(script, name, Path(folder), grouped)
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Gloo's threads and a half-closed store have nothing left to say


def call(script, name, folder, grouped):
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    function = getattr(imported(script), name)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if grouped:
        dist.init_process_group("gloo")
    result = function(rank, count, *json.loads((folder / "arguments.json").read_text()))
    (folder / f"{rank}.json").write_text(json.dumps(result))
    if dist.is_initialized():
        dist.barrier()


if __name__ == "__main__":
    run_rank(*sys.argv[1:])
