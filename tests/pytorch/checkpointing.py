"""Activation checkpointing of a model's blocks, as torchtitan has it. Kinds have the names that scenarios give them."""

import itertools

KINDS = {"none": "none", "full": "full", "every 2": {"every": 2}, "operators": "operators"}


def is_checkpointed(kind, index):
    """Whether the block at `index` is. torchtitan counts from one."""
    return kind != "none" and (kind != "every 2" or (index + 1) % 2 == 0)


def options_of(kind):
    """Keywords of checkpoint() and checkpoint_wrapper()."""
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    if kind != "operators":
        return {}
    return {"context_fn": lambda: create_selective_checkpoint_contexts(keep_every_other_product())}


def keep_every_other_product():
    """torchtitan's policy: attention, and products that are first, third and so on of their pass; those of layers with a
    bias, too."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy

    counts = {True: itertools.count(), False: itertools.count()}
    attention = {op.default for op in (
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, torch.ops.aten._scaled_dot_product_flash_attention,
        torch.ops.aten._scaled_dot_product_efficient_attention)}
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)

    def policy(context, operation, *_, **__):
        keeps = operation in attention or operation in products and next(counts[context.is_recompute]) % 2 == 0
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def wrap_blocks(model, blocks, kind):
    """Each block that is to be checkpointed becomes a checkpoint_wrapper's. `blocks`: their names, of children of a
    Sequential or of a ModuleList."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    for index, name in enumerate(blocks):
        if is_checkpointed(kind, index):
            parent, _, last = name.rpartition(".")
            holder = model.get_submodule(parent)
            holder[int(last)] = checkpoint_wrapper(holder[int(last)], **options_of(kind))
