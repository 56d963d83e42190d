"""What bucketwise finds out within a PyTorch training script, without changing what is trained.

    import bucketwise.torch as bw

    with bw.advise(model):      # a DistributedDataParallel, or a module that is going to be inside of one
        ...training loop...

Rank 0 then prints which bucket size is best and where to type it. In a Trainer: bw.TrainerCallback() (Transformers) or
bw.LightningCallback(); with torch.profiler: on_trace_ready=bw.trace_handler("advice.json"). What the script's step is as
a scenario, and nothing more: bw.capture(model, "workload.json").

PyTorch 1.13 or newer, CPU or CUDA, one node or several, under torchrun or anything that sets up torch.distributed.
"""

from bucketwise.torch.advice import Advice, advise
from bucketwise.torch.callbacks import LightningCallback, TrainerCallback, trace_handler
from bucketwise.torch.capture_pytorch import capture

__all__ = ["Advice", "LightningCallback", "TrainerCallback", "advise", "capture", "trace_handler"]
