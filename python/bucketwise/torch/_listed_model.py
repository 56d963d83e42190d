"""A recording as a scenario's `workload.model`: its parameters and operations one by one (scenarios/README.md)."""

import torch

from bucketwise.torch._operations import PRODUCTS

# A product's passes backward.
PRODUCT_BACKWARD = (*PRODUCTS, "convolution_backward")


def listed_model(recording, batch, sequence, size):
    """Returns `workload.model` and caveats. `size`: bytes of the arithmetic's element."""
    module, groups = recording.module, recording.finish()
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    frozen = sum(p.numel() for p in module.parameters() if not p.requires_grad)
    place = {name: i for i, name in enumerate(recording.finishers)}
    for group in groups:
        group.parameters = sorted((name for name in group.parameters if name in place), key=place.get)
    for name, finisher in recording.finishers.items():
        if name in finisher.parameters:  # what read it before had no part in its gradient
            for group in groups[: groups.index(finisher)]:
                group.parameters = [other for other in group.parameters if other != name]
    unused = [name for name in trained if name not in place]
    writer = _Writer(recording, size)
    model = {"batch": batch,
             "parameters": [{"name": name, "shape": list(p.shape) or [1]} for name, p in trained.items()],
             "operations": [operation for group in groups for operation in writer.operations(group)]}
    if sequence:
        model["sequence_length"] = sequence
    buffers = [{"name": name, "numel": b.numel(), "element_bytes": b.element_size()}
               for name, b in module.named_buffers() if b.numel() > 0]
    if buffers:
        model["buffers"] = buffers
    if frozen:
        model["frozen_elements"] = frozen
    return model, _caveats(recording, trained, unused, frozen)


def _caveats(recording, trained, unused, frozen):
    caveats = []
    if unused:
        elements = sum(trained[name].numel() for name in unused)
        caveats.append(f"{len(unused)} parameters, {elements} numbers, such as {unused[0]}, get no gradient in this "
                       "pass: they are taken for ready at once, as with find_unused_parameters")
    if frozen:
        caveats.append(f"{frozen} numbers of frozen parameters take memory and have no gradients; where parameters are "
                       "sharded, gathering them is not simulated")
    first = {}
    for group in recording.groups:
        for name in group.parameters:
            first.setdefault(name, group)
    found = [name for group in reversed(recording.groups) for name in group.parameters if first[name] is group]
    if found != list(recording.finishers):
        caveats.append("gradients become ready in another order than forward uses their parameters, reversed; the "
                       "latter is simulated")
    return caveats


class _Writer:
    def __init__(self, recording, size):
        self.recording, self.size = recording, size

    def operations(self, group):
        if group.attention is not None:
            return self._attention(group)
        name = self._name(group)
        operation = {"name": name[-200:], "kind": self._kind(group)}
        operation.update(self._product(group) if group.product is not None else self._passes(group))
        if operation["kind"] == "pass":
            del operation["kind"]
        if self.size == 4 and self._upcasts(group):  # in 16 bits the casts were seen
            operation["upcasts"] = True
        self._finish(group, operation)
        return [operation]

    def _finish(self, group, operation):
        if group.parameters:
            operation["parameters"] = group.parameters
        floats, others = 0, 0
        for dtype, size in group.kept.items():
            if dtype.is_floating_point and dtype.itemsize == self.size:
                floats += size // self.size
            else:
                others += size
        operation.update({"kept_elements": floats} if floats else {})
        operation.update({"kept_bytes": others} if others else {})

    def _name(self, group):
        name = self.recording.names.get(group.module)
        if name is None:  # such as an activation that is called and belongs to no module
            name = f"{group.scope}.{type(group.module).__name__}".lstrip(".")
        if group.product is not None and name:
            return name
        if "nll_loss" in " ".join(call.name for call in group.calls):
            return f"{name}.loss" if name else "loss"
        if name and not any(True for _ in group.module.children()):
            return name
        main = max(group.calls, key=lambda call: call.moved()).name.lstrip("_") if group.calls else group.name
        return f"{name}.{main}" if name else main

    def _upcasts(self, group):
        """Whether autocast computes it in float32 all the same: losses, and RMS norms that are written in Python."""
        return any("nll_loss" in call.name for call in group.calls) or "RMSNorm" in type(group.module).__name__

    def _kind(self, group):
        names = [call.name for call in group.calls]
        if group.product is not None:
            return group.kind
        if any("batch_norm" in name for name in names):
            return "pass"
        if "Norm" in type(group.module).__name__:
            return "normalisation"
        is_sum = names in (["add"], ["add_"]) and any(True for _ in group.module.children())
        is_loss = any("nll_loss" in name for name in names)
        return "stream" if is_sum or is_loss or "embedding" in names else "pass"

    # -- passes over memory --

    def _elements(self, moved):
        return -(-moved // self.size)

    def _pass(self, calls, is_used_outside):
        """Work of calls: of one fused kernel, and of theirs."""
        made = {storage for call in calls for storage, _ in call.writes}
        reads = {storage: size for call in calls for storage, size in call.reads if storage not in made}
        writes = {storage: size for call in calls for storage, size in call.writes if is_used_outside(storage)}
        fused = self._elements(sum(reads.values()) + sum(writes.values()))
        every = self._elements(sum(call.moved() for call in calls))
        work = {"elements": max(fused, 1)}
        kernels = sum(call.kernels for call in calls)
        work.update({"kernels": kernels} if kernels != 1 else {})
        work.update({"further_elements": every - fused} if every > fused else {})
        return work

    def _passes(self, group):
        readers = self.recording.readers
        passes = {"forward": self._pass(group.calls, lambda storage: readers.get(storage, set()) - {group})}
        norm = next((call for call in group.calls if "batch_norm" in call.name and call.writes), None)
        if norm is not None:  # reads for the statistics, reads and writes to normalise
            passes["forward"]["elements"] += self._elements(norm.writes[0][1])
            if group.parameters:
                parameters = dict(self.recording.module.named_parameters())
                passes["batch_norm_channels"] = parameters[group.parameters[0]].numel()
        for key, calls in (("input_gradient", [c for c in group.backward if not c.weight]),
                           ("weight_gradient", [c for c in group.backward if c.weight])):
            if calls:
                passes[key] = self._backward_pass(calls)
        return passes

    def _backward_pass(self, calls):
        own = set(map(id, calls))
        uses, gradients = self.recording.uses, self.recording.gradients
        return self._pass(calls, lambda storage: storage in gradients or
                          any(id(call) not in own for call in uses.get(storage, ())))

    # -- products --

    def _product(self, group):
        product, operands = group.product, group.operands
        flops = 2 * product["m"] * product["n"] * product["k"] * product["count"]
        elements = product["m"] * product["k"] + product["k"] * product["n"] + product["m"] * product["n"]
        forward = {"flops": flops, "elements": operands + group.bias}
        dropped = group.calls[1:]
        if dropped:
            forward.update(kernels=1 + sum(call.kernels for call in dropped),
                           further_elements=self._elements(sum(call.moved() for call in dropped)))
        if group.kind == "convolution" and group.bias:  # added by a kernel of its own
            result = product["m"] * product["n"] * product["count"]
            forward.update(kernels=forward.get("kernels", 1) + 1,
                           further_elements=forward.get("further_elements", 0) + 2 * result)
        operation = {"forward": forward, "product": product}
        if operands != elements * product["count"]:
            operation["operand_elements"] = operands
        if group.area != 1:
            operation["kernel_area"] = group.area
        needs = group.needs or (False, False)
        besides = [call for call in group.backward if call.name not in PRODUCT_BACKWARD]
        for key, needed, calls in (
                ("input_gradient", needs[0], [c for c in besides if not (c.weight and needs[1])]),
                ("weight_gradient", needs[1], [c for c in besides if (c.weight or not needs[0])])):
            if needed:
                operation[key] = self._product_backward(group, key, flops, calls)
        return operation

    def _product_backward(self, group, key, flops, calls):
        is_weight = key == "weight_gradient"
        sums = [call for call in calls if call.is_sum and not is_weight]
        further = self._elements(sum(call.moved() for call in calls if call not in sums))
        kernels = 1 + sum(call.kernels for call in calls)
        if is_weight and group.kind == "convolution" and group.bias:
            kernels, further = kernels + 1, further + group.product["m"] * group.product["n"] * group.product["count"]
        besides = group.bias if is_weight else self._elements(sum(call.moved() for call in sums))
        work = {"flops": flops, "elements": group.operands + besides}
        work.update({"kernels": kernels} if kernels != 1 else {})
        work.update({"further_elements": further} if further else {})
        return work

    # -- attention --

    def _attention(self, group):
        """The four operations of softmax(Q K^T) V that a fused kernel replaces, as other models have them. Copies of
        heads that PyTorch makes are operations of their own."""
        (*outer, length, width), key, value, is_causal = group.attention
        count = 1
        for extent in outer:
            count *= extent
        name = group.scope or "attention"
        scores = count * length * key[-2]
        by_keys = {"m": length, "n": key[-2], "k": width, "count": count}
        by_values = {"m": length, "n": value[-1], "k": key[-2], "count": count}

        def product(part, kind, shape):
            work = {"flops": 2 * shape["m"] * shape["n"] * shape["k"] * count,
                    "elements": count * (shape["m"] * shape["k"] + shape["k"] * shape["n"] + shape["m"] * shape["n"])}
            return {"name": f"{name}.{part}", "kind": kind, "forward": dict(work), "input_gradient": dict(work),
                    "weight_gradient": dict(work), "product": shape}

        first = product("scores", "scores", by_keys)
        masked = {"name": f"{name}.scale_and_mask", "kind": "scores_pass",
                  "forward": {"elements": 2 * scores, "kernels": 2, "further_elements": 2 * scores},
                  "input_gradient": {"elements": 2 * scores}}
        softmax = {"name": f"{name}.softmax", "kind": "scores_pass", "forward": {"elements": 2 * scores},
                   "input_gradient": {"elements": 3 * scores}, "kept_elements": scores}
        last = product("values", "masked_sum" if is_causal else "weighted_sum", by_values)
        for key, kernels, calls in (("forward", 1, group.calls), ("input_gradient", 2, group.backward)):
            last[key]["kernels"] = kernels + sum(call.kernels for call in calls)
            last[key]["further_elements"] = self._elements(sum(call.moved() for call in calls))
        self._finish(group, last)
        return [first, masked, softmax, last]
