"""The operations of one forward and backward pass of a module, recorded on tensors that have no memory.

Every operation is an object of a scenario's `workload.model.operations`: work forward, towards its input and towards
its weights, the kernels of eager PyTorch, and what autograd keeps. Matrix products and attention stand for themselves.
Calls over memory between two of them in one module are one operation: its `elements` are those of a fused kernel, and
its `further_elements` the rest that eager kernels move.

An operation's backward is what autograd's nodes of its forward run: both have the same sequence numbers, and autograd
runs them from the highest on. Gradients that autograd sums where a tensor has several readers belong to the operation
that ran last.
"""

import torch
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ATTENTION = "scaled_dot_product_attention"
# Kernels of PyTorch's CUDA backend, where they are not one.
KERNELS = {"embedding_dense_backward": 3, "nll_loss_backward": 2, "nll_loss2d_backward": 2, "slice_backward": 2,
           "select_backward": 2, "index_put": 2, "max_pool2d_with_indices_backward": 2, "cumsum": 2, "sort": 3,
           "topk": 2, "_softmax_backward_data": 1, "nonzero": 3}
# They read as much as they write, however large the table is.
LOOK_UP = ("embedding", "index", "index_select", "gather", "take", "nll_loss_forward", "nll_loss2d_forward")
NOTHING = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias", "lift_fresh",
           "device", "_local_scalar_dense", "resize_")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "convolution")
NORM_BACKWARD = ("native_layer_norm_backward", "native_batch_norm_backward", "_fused_rms_norm_backward",
                 "native_group_norm_backward", "cudnn_batch_norm_backward")


class _Call:
    """One kernel, or a few: bytes by storage."""

    def __init__(self, name, reads, writes):
        self.name, self.reads, self.writes = name, reads, writes
        self.weight = False  # in backward: it only serves gradients of parameters
        self.is_sum = False  # of gradients of a tensor with several readers
        self.kernels = KERNELS.get(name, 1)

    def moved(self):
        return sum(size for _, size in self.reads) + sum(size for _, size in self.writes)


class _Group:
    """An operation: calls that belong together."""

    def __init__(self, module, scope, name, kind="pass"):
        self.module, self.scope, self.name, self.kind = module, scope, name, kind
        self.calls, self.backward = [], []
        self.product = self.operands = None  # {m, n, k, count}; elements
        self.area = 1
        self.needs = None  # whether the product's two factors have gradients
        self.bias = 0  # elements
        self.parameters = []  # names
        self.kept = {}  # bytes by dtype
        self.channels = 0  # of a BatchNorm
        self.attention = None  # shapes of query, key and value; whether it is causal
        self.nodes = ()  # autograd's of attention


class Recording(TorchDispatchMode):
    """Records what runs between begin and end. `module`: on fake tensors. `fake`: their mode."""

    def __init__(self, module, fake):
        super().__init__()
        self.module, self.fake = module, fake
        self.names = {m: name for name, m in module.named_modules()}
        self.stack, self.groups, self.of_node, self.pending = [], [], {}, []
        self.storages, self.next_storage = {}, 0
        self.producers = {}  # groups by storage
        self.parameter_of = {}  # names by storage
        self.readers = {}  # forward: sets of groups by storage
        self.backward, self.last, self.is_backward, self.inside = [], None, False, None
        self.saved, self.gradients = set(), set()
        self.finishers = {}  # groups that finished gradients, by name, in that order
        for name, parameter in module.named_parameters():
            self.parameter_of[self._fresh(parameter)] = name

    # -- storages --

    def _fresh(self, tensor):
        self.next_storage += 1
        self.storages[tensor.untyped_storage()._cdata] = self.next_storage
        return self.next_storage

    def _storage(self, tensor):
        known = self.storages.get(tensor.untyped_storage()._cdata)
        return self._fresh(tensor) if known is None else known

    def _size(self, tensor):
        return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())

    # -- running --

    def run(self, function, grad_of):
        """Runs function() forward, and backward from the tensors grad_of(its result)."""
        hooks = [torch.nn.modules.module.register_module_forward_pre_hook(lambda m, _: self._enter(m)),
                 torch.nn.modules.module.register_module_forward_hook(lambda m, *_: self._leave(m), always_call=True)]
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                hooks.append(parameter.register_post_accumulate_grad_hook(lambda p, name=name: self._arrive(name, p)))
        try:
            with self.fake, _Attention(self), self:
                with torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor):
                    roots = grad_of(function())
                self._end_forward()
                torch.autograd.backward(roots, [torch.empty_like(root) for root in roots])
        finally:
            for hook in hooks:
                hook.remove()
        return self

    def _enter(self, module):
        self.stack.append(module)

    def _leave(self, module):
        while self.stack and self.stack.pop() is not module:
            pass

    def _arrive(self, name, parameter):
        self.finishers[name] = self.last
        self.gradients.add(self._storage(parameter.grad))

    def _keep(self, tensor):
        storage = self._storage(tensor)
        if storage in self.producers and storage not in self.saved:
            self.saved.add(storage)
            kept = self.producers[storage].kept
            kept[tensor.dtype] = kept.get(tensor.dtype, 0) + tensor.untyped_storage().nbytes()
        return tensor

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.name().split("::")[-1].split(".")[0]
        if name in NOTHING or getattr(function, "is_view", False):
            self._view(name)
            return result
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        reads = [(self._storage(tensor), self._size(tensor)) for tensor in given]
        known = {storage for storage, _ in reads}
        changes = function._schema.is_mutable
        writes = []
        for tensor in made:
            at = self.storages.get(tensor.untyped_storage()._cdata)
            is_alias = at in known and any(t.untyped_storage()._cdata == tensor.untyped_storage()._cdata for t in given)
            if not is_alias or changes:
                writes.append((at if is_alias else self._fresh(tensor), self._size(tensor)))
        if not writes:
            self._view(name)
        elif self.is_backward:
            self._call_backward(_Call(name, self._looked_up(name, reads, writes), writes))
        else:
            self._call_forward(name, function, args, kwargs, result,
                               _Call(name, self._looked_up(name, reads, writes), writes))
        return result

    def _looked_up(self, name, reads, writes):
        most = max(size for _, size in writes)
        return [(storage, min(size, most)) for storage, size in reads] if name in LOOK_UP else reads

    # -- forward --

    def _view(self, name):
        if not self.is_backward and name not in NOTHING:
            self.pending.append(torch.autograd._get_sequence_nr() - 1)

    def _call_forward(self, name, function, args, kwargs, result, call):
        group = self._group_of(name, args, kwargs, result)
        group.calls.append(call)
        for node in [*self.pending, torch.autograd._get_sequence_nr() - 1]:
            self.of_node.setdefault(node, group)
        self.pending = []
        for storage, _ in call.reads:
            self.readers.setdefault(storage, set()).add(group)
            parameter = self.parameter_of.get(storage)
            if parameter is not None and parameter not in group.parameters:
                group.parameters.append(parameter)
        if self.inside is None:
            self.producers.update((storage, group) for storage, _ in call.writes)

    def _group_of(self, name, args, kwargs, result):
        if self.inside is not None:
            return self.inside
        module = self.stack[-1] if self.stack else self.module
        last = self.groups[-1] if self.groups else None
        if name in PRODUCTS:
            group = self._new_group(module, "", "linear")
            _set_product(group, name, args, kwargs or {}, result)
            second = args[2 if name in ("addmm", "baddbmm") else 1]
            if group.kind == "linear" and self._storage(second) not in self.parameter_of:
                group.kind = "pass"
            return group
        if last is not None and ("Drop" in type(module).__name__ or
                                 (name == "clone" and last.attention is not None and last.module is module)):
            return last  # as other models count it: kernels of what it drops from, or whose heads it joins
        if last is not None and last.module is module and last.product is None and last.attention is None:
            return last
        return self._new_group(module, name)

    def _new_group(self, module, name, kind="pass"):
        scope = next((self.names[m] for m in reversed(self.stack) if m in self.names), "")
        group = _Group(module, scope, name, kind)
        self.groups.append(group)
        return group

    def begin_attention(self, query, key, value, is_causal):
        """One group for all that runs until end_attention()."""
        module = self.stack[-1] if self.stack else self.module
        self.inside = self._new_group(module, "attention")
        self.inside.attention = (list(query.shape), list(key.shape), list(value.shape), is_causal)
        for node in self.pending:
            self.of_node.setdefault(node, self.inside)
        self.pending, self.inside.nodes = [], torch.autograd._get_sequence_nr()

    def end_attention(self, result):
        self.inside.nodes = range(self.inside.nodes, torch.autograd._get_sequence_nr())
        self.of_node.update((node, self.inside) for node in self.inside.nodes)
        self.pending, self.inside.calls = [], []
        storage = self._storage(result)
        self.producers[storage] = self.inside
        self.saved.add(storage)
        self.inside.kept = {result.dtype: result.numel() * result.element_size()}
        self.inside = None

    def _end_forward(self):
        for node in self.pending:
            self.of_node.setdefault(node, self.groups[-1])
        self.pending, self.is_backward, self.last = [], True, self.groups[-1]

    # -- backward --

    def _call_backward(self, call):
        node = torch._C._current_autograd_node()
        if node is None:
            group = self.last  # gradients of a tensor with several readers are summed
        elif "AccumulateGrad" in node.name():
            return
        else:
            group = self.of_node.get(node._sequence_nr(), self.last)
            if group.product is not None and group.needs is None and "View" not in node.name():
                edges = [function is not None for function, _ in node.next_functions]
                group.needs = _needed(node.name(), edges)
        self.last = group
        for part in _parted(call):
            # Behind a product nothing else adds.
            part.is_sum = node is None or (part.name in ("add", "add_") and group.product is not None)
            part.group = group
            self.backward.append(part)
            if node is None or node._sequence_nr() not in group.nodes:
                group.backward.append(part)

    def finish(self):
        """Finds out which calls of backward serve gradients of parameters alone. Returns the groups."""
        uses = {}
        for call in self.backward:
            for storage, _ in call.reads:
                uses.setdefault(storage, []).append(call)
        for call in reversed(self.backward):
            after = [use for storage, _ in call.writes for use in uses.get(storage, ()) if use is not call]
            final = any(storage in self.gradients for storage, _ in call.writes)
            call.weight = (bool(after) or final) and all(use.weight and use.group is call.group for use in after)
        self.uses = uses
        return self.groups


class _Attention(TorchFunctionMode):
    def __init__(self, recording):
        super().__init__()
        self.recording = recording

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(function, "__name__", "") == "dropout":  # as on a GPU: one kernel, and a mask
            given = dict(zip(("input", "p", "training"), args), **kwargs)
            if given.get("training", given.get("train", True)) and given["p"] > 0:
                return torch.native_dropout(given["input"], given["p"], True)[0]
        if getattr(function, "__name__", "") != ATTENTION:
            return function(*args, **kwargs)
        given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args), **kwargs)
        self.recording.begin_attention(given["query"], given["key"], given["value"], bool(given.get("is_causal")))
        given.update((name, _LaidOutAsGiven.apply(given[name])) for name in ("query", "key", "value"))
        result = function(**given)
        self.recording.end_attention(result)
        return result


class _LaidOutAsGiven(torch.autograd.Function):
    """Gives gradients the strides of their tensors, as a GPU's kernels do: heads are then joined without a copy."""

    @staticmethod
    def forward(context, tensor):
        context.strides = tensor.stride()
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context, gradient):
        if gradient.stride() == context.strides:
            return gradient
        return torch.empty_strided(gradient.shape, context.strides, dtype=gradient.dtype, device=gradient.device)


def _parted(call):
    """A normalisation's backward as the two that CUDA has: gradients of the input, and of the parameters."""
    if call.name not in NORM_BACKWARD or len(call.writes) < 2:
        return [call]
    parts = [_Call(call.name, call.reads[:2], writes) for writes in (call.writes[:1], call.writes[1:])]
    parts[1].kernels = 0 if "batch_norm" in call.name else 1
    return parts


def _needed(node, edges):
    """Whether the product's first and second factor have gradients."""
    if "Convolution" in node:
        return edges[0], edges[1]
    if "GroupedMm" in node:
        return edges[0], edges[1]
    return (edges[-2], edges[-1]) if len(edges) >= 2 else (True, True)


def _set_product(group, name, args, kwargs, result):
    if name == "convolution":
        _set_convolution(group, args, result)
        return
    bias = name in ("addmm", "baddbmm")
    left, right = args[1:3] if bias else args[:2]
    group.bias = args[0].numel() if bias else 0
    if name == "_grouped_mm" and left.dim() == 2:
        count = right.shape[0]
        shape = (-(-left.shape[0] // count), right.shape[-1], left.shape[-1], count)
    else:
        shape = (left.shape[-2], right.shape[-1], left.shape[-1], left.shape[0] if left.dim() == 3 else 1)
    group.product = dict(zip("mnk", map(int, shape)), count=int(shape[3]))
    group.operands = int(left.numel() + right.numel() + result.numel())


def _set_convolution(group, args, result):
    image, weight, bias, transposed, groups = args[0], args[1], args[2], args[6], args[8]
    area = weight[0, 0].numel()
    # The implicit product; of a transposed convolution that of its input gradient.
    wide, narrow = (image, result) if transposed else (result, image)
    group.kind, group.area = "convolution", 1 if transposed else int(area)
    group.product = {"m": int(wide.shape[0] * wide[0, 0].numel()), "n": int(wide.shape[1] // groups),
                     "k": int(narrow.shape[1] // groups * area), "count": int(groups)}
    group.operands = int(image.numel() + weight.numel() + result.numel())
    group.bias = 0 if bias is None else int(bias.numel())


def fake_copy(module, dtype):
    """Gives the module parameters of `dtype` and buffers without memory. Returns their FakeTensorMode."""
    fake, made = FakeTensorMode(allow_non_fake_inputs=True), {}

    def replaced(tensor, make):
        if id(tensor) not in made:
            kind = dtype if tensor.dtype.is_floating_point and make is not None else tensor.dtype
            empty = torch.empty(tensor.shape, dtype=kind)
            made[id(tensor)] = (make(empty, requires_grad=tensor.requires_grad) if make else empty, tensor)
        return made[id(tensor)][0]

    with fake:
        for one in module.modules():
            for name, parameter in one._parameters.items():
                if parameter is not None:
                    one._parameters[name] = replaced(parameter, torch.nn.Parameter)
            for name, buffer in one._buffers.items():
                if buffer is not None:
                    one._buffers[name] = replaced(buffer, None)
    return fake
