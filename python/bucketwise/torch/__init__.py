"""What bucketwise finds out within a PyTorch training script, without changing what is trained.

    import bucketwise.torch as bw

    with bw.advise(model):      # a DistributedDataParallel, or a module that is going to be inside of one
        ...training loop...

Rank 0 then prints which bucket size is best and where to type it. In a Trainer: bw.TrainerCallback() (Transformers) or
bw.LightningCallback(); with torch.profiler: on_trace_ready=bw.trace_handler("advice.json"). What the script's step is as
a scenario, and nothing more: bw.capture(model, "workload.json"); that takes a model under fully_shard too. What the
collectives of such a training take: bw.time_collectives("collectives.jsonl").

PyTorch 1.13 or newer, CPU or CUDA, one node or several, under torchrun or anything that sets up torch.distributed.
"""

from bucketwise.torch.advice import Advice, advise
from bucketwise.torch.callbacks import LightningCallback, TrainerCallback, trace_handler
from bucketwise.torch.capture_pytorch import capture
from bucketwise.torch.collectives import time_collectives

__all__ = [
    "Advice",
    "LightningCallback",
    "TrainerCallback",
    "advise",
    "capture",
    "time_collectives",
    "trace_handler",
]
