"""How torch.compile cuts the graph for DistributedDataParallel (DDPOptimizer), and the effect on readiness and launches."""

import re

import torch
from torch import nn

from watched import BATCHED, FIND_UNUSED, ITERATIONS, STATIC, VIEWS, all_models, launches, unused_of

PATH_OF_SOURCE = re.compile(r"(?:_modules|_parameters)\[['\"]([^'\"]+)['\"]\]|(?<=\.)(\w+)|\[['\"]?(\w+)['\"]?\]")


def parameter_of_source(source, names):
    """The index of the parameter that Dynamo knows as, say, L['self']._modules['layers']._modules['0']..."""
    words = [next(filter(None, groups)) for groups in PATH_OF_SOURCE.findall(source)]
    path = ".".join(word for word in words if word not in ("_modules", "_parameters", "self"))
    matches = [i for i, name in enumerate(names) if path == name or path.endswith("." + name)]
    return max(matches, key=lambda i: len(names[i])) if matches else source


def parameters_of_nodes(graph, index_of):
    """By operation of a graph, in forward order: the parameters among its arguments; without those that have none."""
    found = []
    for node in graph.graph.nodes:
        arguments = [a for a in node.args if isinstance(a, torch.fx.Node) and a.op == "placeholder"]
        found.append([
            index_of(str(argument.target))
            for argument in arguments
            if isinstance(argument.meta["example_value"], nn.Parameter) and argument.meta["example_value"].requires_grad
        ])  # fmt: skip
    return [parameters for parameters in found if parameters]


def watch_compiled(watched, case):
    from torch._dynamo.backends import distributed
    from torch._dynamo.backends.common import aot_autograd
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition

    torch._dynamo.reset()
    torch._dynamo.config.optimize_ddp = case.get("optimize_ddp", True)
    graphs, pieces = [], []
    original = distributed.DDPOptimizer.compile_fn

    def compile_fn(self, graph, example_inputs, **configuration):
        source = {
            str(node.target): node._dynamo_source.name if isinstance(node._dynamo_source.name, str)
            else node._dynamo_source.name()
            for node in graph.graph.nodes
            if node.op == "placeholder"
        }  # fmt: skip
        graphs.append(parameters_of_nodes(graph, lambda name: parameter_of_source(source[name], watched.names)))
        compiled = original(self, graph, example_inputs, **configuration)
        pieces.append([[bucket.size, [parameter_of_source(source.get(name, name), watched.names) for name in bucket.params],
                        bucket.opcount_increased_to_capture_external_output] for bucket in self.buckets])
        caps.add((self.first_bucket_cap, self.bucket_bytes_cap))
        return compiled

    def compile_backward(graph, example_inputs):
        def run(*arguments):
            outputs = graph(*arguments)
            watched.events.append("piece done")
            return outputs

        return make_boxed_func(run)

    caps = set()
    watching = aot_autograd(fw_compiler=lambda graph, example_inputs: make_boxed_func(graph),
                            bw_compiler=compile_backward, partition_fn=min_cut_rematerialization_partition)
    backend = "inductor" if case.get("backend") == "inductor" else watching
    distributed.DDPOptimizer.compile_fn = compile_fn
    try:
        compiled = torch.compile(watched.ddp, backend=backend)
        steps = [watched.step(iteration, model=compiled)[0] for iteration in range(ITERATIONS)]
        # A step frees what it saved, but the graph's edges stay as long as its root is held.
        watched.step(ITERATIONS, model=compiled)
        loss_node = watched.root
    finally:
        distributed.DDPOptimizer.compile_fn = original

    seen, order = set(), []  # the order is topological when it is turned round

    def visit(node):
        if node is not None and node not in seen:
            seen.add(node)
            for function, _ in reversed(node.next_functions):
                visit(function)
            order.append(node)

    visit(loss_node)
    nodes = [node for node in reversed(order) if "CompiledFunction" in node.name()]
    index = {id(p): i for i, p in enumerate(watched.parameters)}

    def spelled_edge(function):
        if function in nodes:
            return f"b{nodes.index(function)}"
        return index.get(id(getattr(function, "variable", None)), function.name())

    edges = [[spelled_edge(f) for f, _ in node.next_functions if f is not None] for node in nodes]

    def spelled(events):
        found = []
        for event in events:
            if event == "piece done":
                found.append("b")
            elif isinstance(event, tuple):
                found.append(f"l{event[1]}")
            elif isinstance(event, int):
                found.append(event)
        return found

    buckets = [[bucket for _, _, bucket in launches(events)] for events in steps]
    changed = next((i + 1 for i in range(1, ITERATIONS) if buckets[i] != buckets[i - 1]), None)
    return {"optimizer_caps": [list(pair) for pair in caps], "graphs": graphs, "pieces": pieces,
            "buckets": [buckets[0], buckets[-1]], "changed_in": changed, "edges": edges,
            "events": [spelled(steps[0]), spelled(steps[-1])]}


def compile_cases():
    large = [name for name in all_models() if name.endswith("_large")] + ["resnet18"]
    for name in large:
        yield name, unused_of(name), {}
        for cap in (1, 2, 5, 25):
            yield name, {**unused_of(name), "bucket_cap_mb": cap}, {}
    for name in ("deep_large", "encoder_large", "conv_large"):
        for cap in (0.5, 0.999):
            yield name, {"bucket_cap_mb": cap}, {}
        for caps in ([1, 2, 4], [4, 1], [0.5, 0.75]):
            yield name, {"bucket_cap_mb_list": caps}, {}
        for more in (STATIC, FIND_UNUSED, VIEWS, BATCHED):
            yield name, {"bucket_cap_mb": 2, **more}, {}
        for cap in (2, 0.5):
            yield name, {"bucket_cap_mb": cap}, {"optimize_ddp": False}
    for name in ("mlp", "encoder", "gpt2", "llama"):
        yield name, {}, {}
        yield name, {"bucket_cap_mb": 0.01}, {}
        yield name, {"bucket_cap_mb": 0.01}, {"optimize_ddp": False}
    yield "mlp_large", {"bucket_cap_mb": 2}, {"optimize_ddp": False}
    for cap in (1, 5):
        yield "deep_large", {"bucket_cap_mb": cap}, {"backend": "inductor"}
