"""Advises and captures a PyTorch training from within its script, without changing the result.

    import bucketwise.torch as bw

    with bw.advise(model):      # a DistributedDataParallel, a module that will be inside one, or one under fully_shard
        ...training loop...

Rank 0 then prints the best bucket size, or the best groups, and where to type it. Trainers take bw.TrainerCallback() (Transformers) or
bw.LightningCallback(), torch.profiler takes on_trace_ready=bw.trace_handler("advice.json"). bw.capture(model,
"workload.json") only writes the step as a scenario, also of a model under fully_shard, and
bw.time_collectives("collectives.jsonl") times the collectives of such a training. bw.ExposedCommunication(model).ms()
is what a step waits for communication, for a training's log.

PyTorch 1.13 or newer, CPU or CUDA, one node or several, under torchrun or anything that sets up torch.distributed.
"""

from bucketwise.torch.advice import Advice, advise
from bucketwise.torch.callbacks import LightningCallback, TrainerCallback, trace_handler
from bucketwise.torch.capture_pytorch import capture
from bucketwise.torch.collectives import time_collectives
from bucketwise.torch.exposed import ExposedCommunication

__all__ = ["Advice", "ExposedCommunication", "LightningCallback", "TrainerCallback", "advise", "capture",
           "time_collectives", "trace_handler"]
