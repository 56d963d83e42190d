"""Records the calls of FSDP2 in a training step in the order of one rank: its methods and those of torch.distributed
are replaced by functions that note the call and make it."""

import contextlib
import functools

import torch.distributed as dist
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState


def states(root):
    """Returns the states of the fully_shard calls of a model that has run once, the root's first."""
    return root._get_fsdp_state()._state_ctx.all_states


COLUMNS = ["kind", "group", "bytes", "dtype", "ranks", "pass", "micro_step", "prefetched"]


class Recorder:
    """`order` lists the events with their group, `collectives` the details of collectives. A group is its place in
    `groups`, lists of names of modules; 0 is the root."""

    def __init__(self, root, groups):
        names = {module: name for name, module in root.named_modules()}
        places = {names[0]: place for place, names in enumerate([[""], *groups])}
        all_groups = [group for state in states(root) for group in state._fsdp_param_groups]
        self.places = {group: places[names[group.modules[0]]] for group in all_groups}
        self.memory = Memory(all_groups)
        self.order, self.collectives = [], []
        self.phase, self.micro_step = "forward", 0
        self.group = None  # that issues a collective
        self.prefetching = 0

    def note(self, what, subject=None):
        self.order.append(what if subject is None else f"{what} {subject}")
        self.memory.sample(len(self.order) - 1)

    # -- what is replaced: each of these is given the original and its arguments --

    @contextlib.contextmanager
    def watching(self):
        before = lambda what: functools.partial(self._noting, what, True)  # noqa: E731
        after = lambda what: functools.partial(self._noting, what, False)  # noqa: E731
        watch = [
            (FSDPParamGroup, "unshard", self._issuing),
            (FSDPParamGroup, "wait_for_unshard", self._wait_for_unshard),
            (FSDPParamGroup, "pre_forward", after("forward_begin")),
            (FSDPParamGroup, "post_forward", before("forward_end")),
            (FSDPParamGroup, "pre_backward", self._pre_backward),
            (FSDPParamGroup, "post_backward", self._post_backward),
            (FSDPParamGroup, "_to_sharded", functools.partial(self._resharding, "is_sharded")),
            (FSDPParamGroup, "_to_sharded_post_forward", functools.partial(self._resharding, "is_sharded_post_forward")),
            (FSDPParamGroup, "_prefetch_unshard", self._prefetch),
            (FSDPState, "_root_post_backward_final_callback", self._final_callback),
            (_fsdp_param_group, "foreach_reduce", self._reduce),
            (_fsdp_collectives, "foreach_reduce_scatter_copy_in", self._copy_in),
            (_fsdp_collectives, "_get_param_all_gather_inputs", self._cast),
            (_fsdp_param_group, "foreach_all_gather_copy_out", self._copy_out),
            (_fsdp_collectives, "_cast_and_view_sharded_grads", self._view_gradients),
            (dist, "all_gather_single", self._all_gather),
            (dist, "reduce_scatter_single", self._reduce_scatter),
            (dist, "all_reduce", self._all_reduce),
        ]
        originals = [(place, name, vars(place)[name]) for place, name, _ in watch]
        for (place, name, original), (*_, replaced) in zip(originals, watch):
            is_static = isinstance(original, staticmethod)
            setattr(place, name, replacement(original.__func__ if is_static else original, replaced, is_static))
        try:
            yield self
        finally:
            for place, name, original in originals:
                setattr(place, name, original)

    def _noting(self, what, before, original, group, *args, **kwargs):
        if before:
            self.note(what, self.places[group])
        result = original(group, *args, **kwargs)
        if not before:
            self.note(what, self.places[group])
        return result

    def _pre_backward(self, original, group, *args):
        if group._training_state.name != "PRE_BACKWARD":  # else it does nothing
            self.note("pre_backward", self.places[group])
        return original(group, *args)

    def _issuing(self, original, group, *args):
        self.group = group
        original(group, *args)
        self.memory.in_flight.clear()

    def _prefetch(self, original, *args):
        self.prefetching += 1
        try:
            return original(*args)
        finally:
            self.prefetching -= 1

    def _wait_for_unshard(self, original, group):
        is_pending = group._all_gather_result is not None
        original(group)
        if is_pending:
            self.note("copy_out", self.places[group])

    def _resharding(self, state, original, group):
        was = getattr(group, state)
        original(group)
        if not was:
            self.note("reshard", self.places[group])

    def _post_backward(self, original, group, *args):
        self.group = group
        self.note("post_backward", self.places[group])
        self.retained = list(group.comm_ctx.reduce_scatter_states)
        original(group, *args)
        self._note_recycled(group)

    def _note_recycled(self, group):
        """The reduce-scatters that were waited for, so that their inputs could be freed."""
        left = group.comm_ctx.reduce_scatter_states
        for state in self.retained:
            if not any(state is other for other in left):
                self.note("recycle", self.places[state.param_group])
        self.retained = []

    def _reduce(self, original, params, gradients, *args, **kwargs):
        self._note_recycled(self.group)
        self.memory.taken = gradients
        result = original(params, gradients, *args, **kwargs)
        self.memory.taken = []
        self.memory.in_flight.clear()
        return result

    def _copy_in(self, original, gradients, buffer, ranks):
        self.memory.hold("reduce_scatter_inputs", buffer)
        self.note("copy_in", self.places[self.group])
        return original(gradients, buffer, ranks)

    def _cast(self, original, params):
        inputs = original(params)
        places = ("_sharded_param_data", "_sharded_post_forward_param_data")
        shards = [getattr(param, place, None) for param in params for place in places]
        own = {shard.untyped_storage()._cdata for shard in shards if shard is not None}
        for tensor in (tensor for tensors in inputs for tensor in tensors):
            if tensor.untyped_storage()._cdata not in own:
                self.memory.hold("all_gather_casts", tensor)
        return inputs

    def _copy_out(self, original, *args, **kwargs):
        """When it has run, what was gathered is there twice."""
        original(*args, **kwargs)
        self.memory.sample(len(self.order) - 1)

    def _view_gradients(self, original, *args, **kwargs):
        """Cast, they are beside what was reduced."""
        gradients = original(*args, **kwargs)
        for gradient in gradients:
            self.memory.hold("sharded_gradients", gradient)
        self.memory.sample(len(self.order) - 1)
        return gradients

    def _final_callback(self, original, state):
        self.phase = "after_backward"
        self.note("after_backward")
        original(state)
        self.note("end")

    def _note_collective(self, kind, whole, group):
        size, dtype = whole.numel() * whole.element_size(), str(whole.dtype).removeprefix("torch.")
        ranks, prefetched = dist.get_world_size(group), self.prefetching > 0
        row = [kind, self.places[self.group], size, dtype, ranks, self.phase, self.micro_step, prefetched]
        self.collectives.append(row)
        self.note(kind, self.places[self.group])

    def _all_gather(self, original, output_tensor=None, *args, group=None, **kwargs):
        self.memory.hold("all_gather_outputs", output_tensor)
        self._note_collective("all_gather", output_tensor, group)
        return original(output_tensor, *args, group=group, **kwargs)

    def _reduce_scatter(self, original, *, output, input, group=None, **kwargs):
        self.memory.hold("reduce_scatter_outputs", output)
        self._note_collective("reduce_scatter", input, group)
        return original(output=output, input=input, group=group, **kwargs)

    def _all_reduce(self, original, tensor, *args, group=None, **kwargs):
        self._note_collective("all_reduce", tensor, group)
        return original(tensor, *args, group=group, **kwargs)


def replacement(original, replaced, is_static):
    """A function, so that it becomes a method where it replaces one."""
    function = lambda *args, **kwargs: replaced(original, *args, **kwargs)  # noqa: E731
    return staticmethod(function) if is_static else function


class Memory:
    """Bytes of the storages that hold parameters and gradients, each counted once, by what it is, and the moment when they
    are most: what FSDP2 refers to, not what a thread of Gloo has not let go of yet. A CPU runs no streams, so what is
    freed later where there are some is freed at once here."""

    def __init__(self, groups):
        self.groups = groups
        self.params = [param for group in groups for param in group.fsdp_params]
        self.in_flight = []  # (what, tensor) that only a call that has not returned refers to
        self.taken = []  # gradients that post_backward has taken from their parameters
        self.peak_bytes, self.at_peak, self.peak_at, self.largest = -1, {}, None, {}

    def hold(self, what, tensor):
        self.in_flight.append((what, tensor))

    def held(self):
        """(what, tensor or None) of all there is; of a storage that is two things the first counts."""
        for param in self.params:
            yield "sharded_parameters", param._sharded_param_data
            yield "post_forward_shards", getattr(param, "_sharded_post_forward_param_data", None)
            gradient = param.sharded_param.grad
            yield "sharded_gradients", None if gradient is None else gradient._local_tensor
            for output in param.all_gather_outputs:
                yield "unsharded_parameters", output
            unsharded = getattr(param, "_unsharded_param", None)
            yield "unsharded_gradients", None if unsharded is None else unsharded.grad
        for tensor in self.taken:
            yield "unsharded_gradients", tensor
        context = self.groups[0].comm_ctx
        results = [group._all_gather_result for group in self.groups]
        results += [context.all_gather_state.all_gather_result] if context.all_gather_state else []
        for result in results:
            yield "all_gather_outputs", None if result is None else result.all_gather_output
        for state in context.reduce_scatter_states:
            yield "reduce_scatter_inputs", state.reduce_scatter_input
        for group in self.groups:
            yield "partial_gradients", group._partial_reduce_output
            reduced = group._all_reduce_state
            yield "reduce_scatter_outputs", None if reduced is None else reduced.all_reduce_input
        yield from self.in_flight

    def sample(self, at):
        found, seen = {}, set()
        for what, tensor in self.held():
            storage = None if tensor is None else tensor.untyped_storage()
            if storage is not None and storage.nbytes() and storage._cdata not in seen:
                seen.add(storage._cdata)
                found[what] = found.get(what, 0) + storage.nbytes()
        total = sum(found.values())
        if total > self.peak_bytes:
            self.peak_bytes, self.at_peak, self.peak_at = total, found, at
        for what, size in found.items():
            self.largest[what] = max(self.largest.get(what, 0), size)
