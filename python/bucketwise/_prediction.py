"""predict(), predict_sharded() and sweep(): predictions as data. Every number is the program's. `raw` holds everything that
`predict --json` prints; docs/python.md and cli/README.md describe it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence, Type, TypeVar

from bucketwise._command import Document, run

T = TypeVar("T", bound="_FromJson")


class _FromJson:
    @classmethod
    def of(cls: Type[T], row: dict[str, Any], **others: Any) -> T:
        """Takes the fields that a printed object has by their names, and `others`."""
        named = {name: row[name] for name in cls.__annotations__ if name in row}
        return cls(**{**named, **others, "raw": row})


@dataclass(frozen=True)
class Plan(_FromJson):
    """The buckets of one cap, and their step."""

    bucket_cap_mib: float | None  # or None, without caps
    buckets: int
    bucket_bytes: list[int]  # in launch order
    step_ms: float
    forward_ms: float
    backward_ms: float
    optimizer_ms: float
    communication_ms: float
    exposed_communication_ms: float
    raw: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Setting(_FromJson):
    """A framework's setting to type, and its step."""

    typed: str
    buckets: int
    bucket_bytes: list[int]
    step_ms: float
    loss: float  # share by which it exceeds the best step
    raw: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Verdict(_FromJson):
    """The advice, and one sentence on its gain and certainty."""

    advice: str
    text: str
    raw: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Prediction(_FromJson):
    scenario: str
    strategy: str
    ranks: int
    link: str
    verdict: Verdict
    best: Plan
    default: Plan
    keep_default: bool
    plateau_mib: tuple[float | None, float | None]  # lowest and highest cap as good as the best
    sweep: list[Plan]
    settings: dict[str, Setting]  # by framework
    notes: list[str]
    raw: dict[str, Any] = field(repr=False)

    def _repr_html_(self) -> str:
        from bucketwise._picture import html_of

        return html_of(self)


@dataclass(frozen=True)
class ShardedPlan(_FromJson):
    """One setting of sharding, and its step."""

    sharding: dict[str, Any]  # as in a scenario: /sync/sharding
    groups: int
    step_ms: float
    forward_ms: float
    backward_ms: float
    optimizer_ms: float
    communication_ms: float
    exposed_communication_ms: float
    memory_bytes: int  # peak of everything known
    sharded_peak_bytes: int  # peak of parameters and gradients
    raw: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class ShardedPrediction(_FromJson):
    scenario: str
    strategy: str
    ranks: int
    link: str
    verdict: Verdict
    best: ShardedPlan
    configured: ShardedPlan  # the scenario's own
    frontier: list[ShardedPlan]  # by rising memory, each noticeably faster than the one before
    sweep: list[ShardedPlan]
    settings: dict[str, str]  # place -> text to type
    notes: list[str]
    raw: dict[str, Any] = field(repr=False)


def predict(scenario: Document, *, bucket_cap: str | float | Sequence[str | float] | None = None,
            link: Document | None = None, strategy: str | None = None, set: Mapping[str, Any] | None = None,
            ranks: int | None = None, device: str | None = None, batch: int | None = None, dtype: str | None = None,
            plan: str | None = None, for_: str | Sequence[str] | None = None, framework: str | None = None,
            trace: str | None = None, percentiles: bool = False, draws: int | None = None,
            nccl_version: str | None = None, compare_strategies: str | Sequence[str] | None = None) -> Prediction:
    """Returns the prediction of `bucketwise predict SCENARIO --json -`. Options are named as on the command line.

    `scenario` is a file, a model's name, or a mapping with the content of a file; `link` is a file, a preset's name, or
    such a mapping. Files named in a mapping are relative to the current folder. `set` maps JSON pointers to values.
    Raises InputError for refused input, RuntimeError for a failed run, FileNotFoundError without a program, TypeError
    for a strategy that shards.
    """
    options = {"bucket_cap": bucket_cap, "link": link, "strategy": strategy, "set": set, "ranks": ranks,
               "device": device, "batch": batch, "dtype": dtype, "plan": plan, "for": for_, "framework": framework,
               "trace": trace, "percentiles": percentiles, "draws": draws, "nccl_version": nccl_version,
               "compare_strategies": compare_strategies}
    document = json.loads(run("predict", scenario, {**options, "json": "-"}))
    if "sharded" in document:
        raise TypeError(f"{document['scenario']} has the strategy {document['strategy']}, which shards: "
                        "bucketwise.predict_sharded() takes it")
    return Prediction.of(
        document, verdict=Verdict.of(document["verdict"]), best=Plan.of(document["best"]),
        default=Plan.of(document["default"]), plateau_mib=tuple(document["plateau_mib"]),
        sweep=[Plan.of(row) for row in document["sweep"]],
        settings={name: Setting.of(setting) for name, setting in document["settings"].items()})


def predict_sharded(scenario: Document, *, link: Document | None = None, strategy: str | None = None,
                    set: Mapping[str, Any] | None = None, ranks: int | None = None, device: str | None = None,
                    batch: int | None = None, dtype: str | None = None, plan: str | None = None,
                    compare_strategies: str | Sequence[str] | None = None, trace: str | None = None,
                    nccl_version: str | None = None) -> ShardedPrediction:
    """predict() for the strategies fsdp, hsdp and zero3. Raises TypeError for any other."""
    options = {"link": link, "strategy": strategy, "set": set, "ranks": ranks, "device": device, "batch": batch,
               "dtype": dtype, "plan": plan, "compare_strategies": compare_strategies, "trace": trace,
               "nccl_version": nccl_version}
    document = json.loads(run("predict", scenario, {**options, "json": "-"}))
    if "sharded" not in document:
        raise TypeError(f"{document['scenario']} has the strategy {document['strategy']}, which does not shard: "
                        "bucketwise.predict() takes it")

    def plans(rows: list[dict[str, Any]]) -> list[ShardedPlan]:
        return [ShardedPlan.of(row, memory_bytes=row["memory"]["most_bytes"]) for row in rows]

    best, configured = plans([document["best"], document["configured"]])
    return ShardedPrediction.of(
        document, verdict=Verdict.of(document["verdict"]), best=best, configured=configured, frontier=plans(document["frontier"]),
        sweep=plans(document["sweep"]),
        settings={place: setting["typed"] for place, setting in document["settings"].items()})


def sweep(scenario: Document, *, vary: Mapping[str, Any], bucket_cap: str | float | None = None,
          link: Document | None = None, strategy: str | None = None, set: Mapping[str, Any] | None = None,
          ranks: int | None = None, device: str | None = None, batch: int | None = None, dtype: str | None = None,
          jobs: int | None = None, shard: str | None = None) -> list[dict[str, Any]]:
    """Returns the rows of `bucketwise sweep SCENARIO`, ready for pandas.DataFrame().

    `vary` maps JSON pointers to lists of values, or to ranges as on the command line, such as "8..1024:x2"; the last
    pointer changes fastest. Other options and exceptions are those of predict().
    """
    options = {"vary": vary, "bucket_cap": bucket_cap, "link": link, "strategy": strategy, "set": set, "ranks": ranks,
               "device": device, "batch": batch, "dtype": dtype, "jobs": jobs, "shard": shard}
    return [json.loads(line) for line in run("sweep", scenario, options).splitlines()]
