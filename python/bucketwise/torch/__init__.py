"""Advises and captures a PyTorch training from within its script, without changing the result.

    import bucketwise.torch as bw

    with bw.advise(model):      # a DistributedDataParallel, or a module that will be inside one
        ...training loop...

Rank 0 then prints the best bucket size and where to type it. Trainers take bw.TrainerCallback() (Transformers) or
bw.LightningCallback(), torch.profiler takes on_trace_ready=bw.trace_handler("advice.json"). bw.capture(model,
"workload.json") only writes the step as a scenario, also of a model under fully_shard, and
bw.time_collectives("collectives.jsonl") times the collectives of such a training.

PyTorch 1.13 or newer, CPU or CUDA, one node or several, under torchrun or anything that sets up torch.distributed.
"""

from bucketwise.torch.advice import Advice, advise
from bucketwise.torch.callbacks import LightningCallback, TrainerCallback, trace_handler
from bucketwise.torch.capture_pytorch import capture
from bucketwise.torch.collectives import time_collectives

__all__ = ["Advice", "LightningCallback", "TrainerCallback", "advise", "capture", "time_collectives", "trace_handler"]
