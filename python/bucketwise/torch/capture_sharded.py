"""Writes a bucketwise scenario of a training step under PyTorch's fully_shard (FSDP2), from within the training script.

    from bucketwise.torch import capture
    capture(model, "workload.json")     # the module for which fully_shard was called last, before the training loop

Otherwise like capture_pytorch.py. Written for PyTorch 2.6 and newer; tried with 2.15 on a CPU. FSDP1
(FullyShardedDataParallel) is not simulated.

A step is cut at the begin and end of each module under fully_shard, in forward and in backward, so that each operation
is the module's own computation, without the modules inside it. FSDP2's own work is left out: all-gathers,
reduce-scatters, waiting for them, copying, freeing. The cost of a copied byte, the link's copy_gb_per_s, is that of this
work on a CPU, without the collectives; else it is measured at the end on a buffer of the largest group's size. The loss
belongs to the root.

Collectives beside computing slow it down by an unknown amount. On a CPU nothing overlaps unless unsharding is
asynchronous; on a GPU collectives overlap, and the scenario says so.

Activation checkpointing: if backward runs the forward of a module again for which fully_shard or checkpoint_wrapper
was called, the operation says its share of that (`recomputed`).

Times are rank 0's; with advise() on a CPU, where ranks go from collective to collective in step, those of the rank that
took longest. Under torch.compile a graph ends at FSDP2's hooks, so operations are cut there too.
"""

import collections
import datetime
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch.utils import weak

from bucketwise.torch._own_work import OwnWork, tensors
from bucketwise.torch.watch import DTYPES, Pass, Watch, ms_within, rate_of, say

OVERLAPPED = "collectives ran beside computing, which slowed what was timed by an unknown amount"
LOSS = "(loss)"  # computed between the root's forward and its backward; the simulator counts it to the root
COPIED_MOST = 1 << 28  # bytes of the buffer for timing copies
COPIES = 5
SHARED_WITHIN_S = 10


class ShardedPass(Pass):
    """Has the operations of its modules in forward and in backward."""

    def __init__(self, number, entered, begin, groups):
        super().__init__(number, entered, begin, any(group.reduce_grads for group in groups))
        self.operations = {"forward": [], "backward": []}
        # These may differ between micro-steps.
        self.all_reduces = all(group.all_reduce_grads or not group.reduce_grads for group in groups)
        self.reshards = all(group.reshard_after_backward for group in groups)


class _Operation:
    """An uninterrupted computation of the module `name`, or of the loss."""

    def __init__(self, name, clock):
        self.name, self.clock, self.ready, self.moments, self.again = name, clock, [], [], []
        self.slowest_us = 0.0  # of other ranks
        self.stamp()

    def stamp(self):
        self.moments.append((self.clock.now(), time.perf_counter()))

    def device_us(self):
        return 1e3 * sum(self.clock.ms_between(a, b) for (a, _), (b, _) in zip(self.moments[::2], self.moments[1::2]))

    def host_us(self):
        return 1e6 * sum(b - a for (_, a), (_, b) in zip(self.moments[::2], self.moments[1::2]))

    def recomputed(self):
        """The share of it that computes forward again."""
        device_us = self.device_us()
        return min(1e3 * ms_within(self.clock, self.again) / device_us, 1.0) if device_us > 0 else 0.0


def _device_us(one):
    return {way: [(o.name, o.device_us()) for o in operations] for way, operations in one.operations.items()}


class ShardedCapture(Watch):
    def __init__(self, model, path, steps, warmup, meanwhile=None, finished=None):
        super().__init__(model, (), path, steps, warmup, meanwhile, finished)
        self.names = {module: name for name, module in self.module.named_modules()}
        self.open = None  # the operation that runs
        self.called = []  # modules of groups whose forward has begun
        self.outputs, self.ending = weak.WeakIdKeyDictionary(), []  # tensor -> its module's name; outputs of the one that ends
        self.ends_in_callback = False  # in this backward
        self.shared = None  # through whose store ranks tell each other their times
        self.own_work = None  # FSDP2's, on a CPU

    def _refuse_sharded(self):
        for name, module in self.module.named_modules():
            if hasattr(module, "_get_fsdp_state"):
                for group in _groups(module._get_fsdp_state()):
                    _refuse(group, name or "the root")

    # -- the groups --

    def _learn(self):
        """Reads the groups once FSDP2 knows them, in the order of the modules, the root's first."""
        state = self.module._get_fsdp_state()
        if not state._is_root:
            raise ValueError("expected the module for which fully_shard was called last")
        self.states = state._state_ctx.all_states
        self.groups = [group for state in self.states for group in _groups(state)]
        self.shard_modules = [module for state in self.states for module in state._modules]
        self.params = {p._param_fqn: p for group in self.groups for p in group.fsdp_params}

    # -- watching --

    def _begin_forward(self, *_):
        if not self._is_ready():
            return
        if self._is_new():
            entered, self.entered = self.entered, None
            is_common = self.module.training and any(group.reduce_grads for group in self.groups)
            taken = is_common and self.meanwhile is not None and self.meanwhile.begin_pass(self)
            begin = self.clock.now()
            one = ShardedPass(self.number, begin if entered is None else entered, begin, self.groups)
            one.taken = taken
            self._begin_pass(one)
        self.called = [self.module]
        self._run(self.names[self.module])

    def _watch(self):
        self.hooks.append(self.module.register_forward_pre_hook(self._enter, prepend=True))
        self.hooks.append(self.module.register_forward_hook(self._end, prepend=True))
        self.hooks.append(self.module.register_forward_hook(self._leave_module))
        for module in self.shard_modules:
            if module is not self.module:
                # FSDP2's own hooks run between these: before forward the first of all, after it the first registered.
                self.hooks.append(module.register_forward_pre_hook(self._enter_module, prepend=True))
                self.hooks.append(module.register_forward_pre_hook(self._begin, with_kwargs=True))
                self.hooks.append(module.register_forward_hook(self._end, prepend=True))
                self.hooks.append(module.register_forward_hook(self._leave_module))
        wrapped = [m._checkpoint_wrapped_module for m in self.module.modules() if hasattr(m, "_checkpoint_wrapped_module")]
        self._watch_recomputing(dict.fromkeys([*self.shard_modules, *wrapped]))
        if not self.clock.on_device:
            self.own_work = OwnWork(self)
            self.hooks.append(self.own_work)
        self.watched = set()  # names of parameters with hooks on their gradients

    def _is_watched(self):
        """False in evaluation and in recomputation during backward."""
        return torch.is_grad_enabled() and not self.depth and self.current is not None and bool(self.called)

    def _enter_module(self, *_):
        if self._is_watched():
            self._pause()

    def _again_moments(self):
        return self.open.again if self.open is not None else None

    def _begin(self, module, arguments, keywords):
        if not self._is_watched():
            return
        caller = self.names[self.called[-1]]
        given = [t for t in tensors((arguments, keywords)) if t.requires_grad]
        # Where FSDP2 reduces this module's gradients, autograd passes a node of FSDP2.
        node = next((t.grad_fn for t in given if "PostBackward" in type(t.grad_fn).__name__), None)
        if node is not None:
            node.register_prehook(lambda *_: self._pause())
            node.register_hook(lambda *_: self._run(caller))
        else:
            for tensor in given:
                if tensor not in self.outputs:  # otherwise another module of the group continues
                    tensor.register_hook(lambda _: self._run(caller))
        self.called.append(module)
        self._run(self.names[module])

    def _end(self, module, _, output):
        if not self._is_watched() or self.called[-1] is not module:
            return
        self._pause()
        # FSDP2's hook on these runs between this one and the one of _leave_module.
        self.ending = [t for t in tensors(output) if t.requires_grad]
        for tensor in self.ending:
            self.outputs.setdefault(tensor, self.names[module])  # of modules with the same output the innermost computes it
            tensor.register_hook(lambda _: self._reach())

    def _leave_module(self, module, *_):
        if not self._is_watched() or self.called[-1] is not module:
            return
        self.called.pop()
        for tensor in self.ending:
            tensor.register_hook(lambda _, name=self.outputs[tensor]: self._run(name))
        self.ending = []
        self._watch_gradients()
        self._run(self.names[self.called[-1]] if self.called else LOSS)

    def _watch_gradients(self):
        """Hooks parameters when they are first unsharded: from then on autograd's leaves stay the same."""
        for name, param in self.params.items():
            leaf = getattr(param, "_unsharded_param", None)
            if name not in self.watched and leaf is not None and leaf.requires_grad:
                self.watched.add(name)
                self.hooks.append(leaf.register_post_accumulate_grad_hook(lambda _, name=name: self._arrive(name)))

    def _arrive(self, name):
        if self.current is not None and self.depth:
            self.current.finished[name] = True
            if self.open is not None:
                self.open.ready.append(name)

    def _begin_backward(self):
        super()._begin_backward()
        self.ends_in_callback = False
        self._run(LOSS)

    def _reach(self):
        """The gradient of a module's output exists, and FSDP2 has not seen it."""
        if self.current is None or not self.depth:
            return
        self._pause()
        if not self.ends_in_callback:
            self.ends_in_callback = True
            # Runs before FSDP2's own callback, which reduces the rest.
            torch.autograd.Variable._execution_engine.queue_callback(self._pause)

    # -- what runs --

    def _pause(self):
        if self.open is not None:
            self.open.stamp()
            self.open = None

    def _run(self, name):
        """The module's own computation begins or continues."""
        if self.current is None or self.current.backward_end is not None:
            return
        self._pause()
        operations = self.current.operations["backward" if self.depth else "forward"]
        if operations and operations[-1].name == name:
            operations[-1].stamp()
        else:
            operations.append(_Operation(name, self.clock))
        self.open = operations[-1]

    # -- the document --

    def _finish(self):
        timing = self.meanwhile
        is_shared = timing is not None and timing.group is not None and timing.problem is None
        if is_shared and not self.clock.on_device:
            own = {p.number: _device_us(p) for p in self.passes[self.warmup:]}
            timing.store.set(f"{timing.key}/operations/{dist.get_rank()}", json.dumps(own))
            self.shared = timing
        super()._finish()

    def _take_slowest(self, passes):
        """Takes other ranks' times of passes with the same operations; of ranks that do not tell them within seconds none."""
        for rank in range(1, dist.get_world_size() if self.shared is not None else 1):
            key = f"{self.shared.key}/operations/{rank}"
            try:
                self.shared.store.wait([key], datetime.timedelta(seconds=SHARED_WITHIN_S))
                found = json.loads(self.shared.store.get(key))
            except RuntimeError:
                return
            for one in passes:
                for way, operations in found.get(str(one.number), {}).items():
                    mine = one.operations[way]
                    if [name for name, _ in operations] == [o.name for o in mine]:
                        for operation, (_, us) in zip(mine, operations):
                            operation.slowest_us = max(operation.slowest_us, us)

    def _write(self, passes):
        self._take_slowest(passes)
        gradients = [{"name": name, "numel": parameter.numel(), "dtype": DTYPES[parameter.dtype],
                      "shape": list(parameter.shape)} for name, parameter in self.parameters if name in self.params]
        workload = {"gradients": gradients,
                    **{f"{way}_operations": self._operations(passes, way) for way in ("forward", "backward")}}
        sync = {"strategy": "fsdp" if _replicas(self.groups[0]) == 1 else "hsdp", "pytorch_version": torch.__version__,
                "sharding": self._sharding(passes)}
        # A step goes from a pass with an optimizer, or from the first of all, to the next.
        at = [-1] + [i for i, p in enumerate(self.passes) if len(p.optimizer) >= 2]
        step = self._step(passes, [b - a for a, b in zip(at, at[1:])])
        document = self._write_document(workload, self._shard_ranks() * _replicas(self.groups[0]), sync, step,
                                        self._copied_gb_per_s(), self._sharded_caveats(passes))
        self._say_what_was_written(document, len(passes))

    def _operations(self, passes, way):
        """Returns medians over the passes with the most frequent order of modules."""
        turns = collections.Counter(tuple(o.name for o in p.operations[way]) for p in passes)
        names, _ = turns.most_common(1)[0]
        alike = [p.operations[way] for p in passes if tuple(o.name for o in p.operations[way]) == names]
        found, ready = [], set()
        for place, name in enumerate(names):
            same = [operations[place] for operations in alike]
            operation = {"name": f"{name} {way}".strip(), "host_us": _us(o.host_us() for o in same)
                         if self.clock.on_device else 0, "device_us": _us(max(o.device_us(), o.slowest_us) for o in same)}
            if way == "backward":
                arrived = [gradient for gradient in same[0].ready if gradient not in ready]
                ready.update(arrived)
                operation.update({"ready": arrived} if arrived else {})
                recomputed = round(statistics.median(o.recomputed() for o in same), 3)
                operation.update({"recomputed": recomputed} if recomputed else {})
            found.append(operation)
        return found

    def _shard_ranks(self):
        return self.groups[0].mesh_info.shard_mesh_size

    def _sharding(self, passes):
        wrapped = [state for state in self.states if state is not self.states[0] and _groups(state)]
        groups = [[self.names[module] for module in state._modules] for state in wrapped]
        sharding = {"groups": groups} if groups else {"layers_per_group": 0}
        sharding.update(self._resharding())
        for way in ("forward", "backward"):
            depth = max((len(_ahead(state, way)) for state in self.states), default=0)
            sharding[f"{way}_prefetch"] = depth or (0 if way == "forward" else 1)
        sharding["asynchronous_unshard"] = self._is_asynchronous()
        sharding.update(self._dtypes())
        context = self.groups[0].comm_ctx
        sharding["reduce_scatter_buffers"] = getattr(context, "reduce_scatter_max_input_buffers", 1)
        is_each = all(p.synchronises for p in passes)
        sharding["gradient_sync"] = "every_micro_step" if is_each else "last_micro_step"
        sharding["reshard_after_backward"] = all(p.reshards for p in passes)
        if _replicas(self.groups[0]) > 1:
            sharding["shard_ranks"] = self._shard_ranks()
            if not all(p.all_reduces for p in passes):
                sharding["all_reduce"] = "last_micro_step"
        return sharding

    def _is_asynchronous(self):
        return any(getattr(g, "unshard_async_op", False) for g in self.groups)

    def _resharding(self):
        """Returns the resharding of all groups but the root's; if they differ, of most of them."""
        found = collections.Counter(_kept(g) for state in self.states[1:] for g in _groups(state))
        after = found.most_common(1)[0][0] if found else True
        resharding = {"reshard_after_forward": after is not False}
        if after not in (True, False):
            resharding["reshard_ranks"] = after
        if after is True and any(_kept(group) is not False for group in _groups(self.states[0])):
            resharding["reshard_root"] = True
        return resharding

    def _dtypes(self):
        param = next(p for g in self.groups for p in g.fsdp_params if p.sharded_param.requires_grad)
        own = param.orig_dtype
        computed = param.param_dtype or own
        # The default is the parameters' own type since 2.15, the compute type before.
        reduced = param.reduce_dtype or (own if _version() >= (2, 15) else computed)
        found = {}
        if computed != own:
            found["parameter_dtype"] = DTYPES[computed]
        if reduced != own or found:
            found["reduce_dtype"] = DTYPES[reduced]
        return found

    def _copied_gb_per_s(self):
        """Returns the rate of FSDP2's own work in the passes, where that was timed; else that of the fastest of a few copies,
        in pieces, of the largest group's size."""
        timed = self.own_work.rate() if self.own_work is not None and not self._is_asynchronous() else None
        if timed is not None:
            return timed
        size = max(sum(p._orig_size.numel() for p in g.fsdp_params) * 4 for g in self.groups)
        size = min(size, COPIED_MOST) // 4096 * 4096
        if not size:
            return None
        try:
            device = self.parameters[0][1].device
            source = torch.zeros(2, size // 8, device=device)
            times = [self._copy_ms(source) for _ in range(COPIES)]
        except RuntimeError:  # out of memory
            return None
        return rate_of(size, min(times))

    def _copy_ms(self, source):
        """Copies like FSDP2 after an all-gather: into newly allocated memory."""
        begin = self.clock.now()
        width = source.shape[1] // 2
        parts = [torch.empty(source.shape[0], width, device=source.device) for _ in range(2)]
        torch.split_with_sizes_copy(source, [width] * 2, dim=1, out=parts)
        end = self.clock.now()
        self.clock.finish()
        return self.clock.ms_between(begin, end)

    def _sharded_caveats(self, passes):
        computing_ms = [1e-3 * sum(o.device_us() for way in p.operations.values() for o in way) for p in passes]
        caveats = self._caveats_of_times(computing_ms)
        is_alone = self._shard_ranks() * _replicas(self.groups[0]) == 1
        if not is_alone and (self.clock.on_device or any(getattr(g, "unshard_async_op", False) for g in self.groups)):
            caveats.append(OVERLAPPED)
        missing = [name for name in self.params if not any(name in p.finished for p in passes)]
        frozen = [name for name in missing if not self.params[name].sharded_param.requires_grad]
        unused = len(missing) - len(frozen)
        if frozen:
            numels = sum(self.params[name]._orig_size.numel() for name in frozen)
            caveats.append(f"{len(frozen)} frozen parameters, {numels} numbers, are gathered too; they are not simulated")
        if unused:
            caveats.append(f"{unused} of {len(self.params) - len(frozen)} gradients were never ready")
        outside = [name for name, _ in self.parameters if name not in self.params]
        if outside:
            caveats.append(f"{len(outside)} parameters are in no group (ignored_params): they are not in the scenario")
        kept = {_kept(g) for state in self.states[1:] for g in _groups(state)}
        if len(kept) > 1:
            caveats.append("groups differ in reshard_after_forward: it is taken for that of most")
        caveats += [f"{what} is not simulated" for what in self._not_simulated()]
        return caveats

    def _not_simulated(self):
        groups = self.groups
        if any(getattr(g.mesh_info, "reduce_scatter_process_group", None) for g in groups):
            yield "set_separate_reduce_scatter_group"
        if not all(getattr(g, "unshard_in_backward", True) for g in groups):
            yield "set_unshard_in_backward"
        if any(getattr(g, "_all_reduce_hook", None) for g in groups):
            yield "an all-reduce hook"
        if any(p.offload_to_cpu for g in groups for p in g.fsdp_params):
            yield "offloading to the CPU"
        if len({g._reduce_dtype for g in groups}) > 1:
            yield "a reduce_dtype that differs between groups"
        if not self._is_next_in_turn("forward") or not self._is_next_in_turn("backward"):
            yield "prefetching what is not next in turn"

    def _is_next_in_turn(self, way):
        """Returns whether each prefetch list names the next modules in this pass's order."""
        turn = list(dict.fromkeys(self._state_of(o.name) for o in self.passes[-1].operations[way]))
        turn = [state for state in turn if state is not None and state is not self.states[0]]
        for place, state in enumerate(turn):
            ahead = _ahead(state, way)
            if ahead and ahead != turn[place + 1 : place + 1 + len(ahead)]:
                return False
        return True

    def _state_of(self, name):
        return next((s for s in self.states for m in s._modules if self.names[m] == name), None)

    def _say_what_was_written(self, document, passes):
        sharding, workload = document["sync"]["sharding"], document["workload"]
        us = {way: sum(o["device_us"] for o in workload[f"{way}_operations"]) for way in ("forward", "backward")}
        say(
            f"wrote {self.path}: {len(workload['gradients'])} parameters, {len(sharding.get('groups', []))} groups beside "
            f"the root, forward {1e-3 * us['forward']:.4g} ms, backward {1e-3 * us['backward']:.4g} ms without collectives and "
            f"copies, medians of {passes} passes"
        )
        missing = ["the link, a placeholder"]
        missing += ["the optimizer's time"] if "optimizer_ms" not in document["step"] else []
        say("not captured: " + "; ".join(missing))


def _groups(state):
    """Returns the groups of a state; before PyTorch 2.12 or so it had at most one."""
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
    return groups


def _refuse(group, name):
    if not hasattr(group.mesh_info, "shard_mesh_size"):
        raise ValueError(f"bucketwise: {name}: is replicated, not sharded")
    if any(param.is_dtensor for param in group.fsdp_params):
        raise ValueError(f"bucketwise: {name}: tensor parallelism is not simulated")
    if any(param.fsdp_placement.dim != 0 for param in group.fsdp_params):
        raise ValueError(f"bucketwise: {name}: sharding of another dimension than the first is not simulated")


def _replicas(group):
    return getattr(group.mesh_info, "replicate_mesh_size", 1)


def _kept(group):
    """Returns `reshard_after_forward` of one group: False, True or a number of ranks."""
    after = group.post_forward_mesh_info
    if after is None:
        return False
    return True if after is group.mesh_info else after.shard_mesh_size


def _ahead(state, way):
    return getattr(state, f"_states_to_{way}_prefetch")


def _us(times):
    return round(statistics.median(times), 3)


def _version():
    return tuple(int(part) for part in torch.__version__.split(".")[:2])
