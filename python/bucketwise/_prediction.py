"""predict() and sweep(): predictions as data. Every number is the program's. `raw` holds everything that `predict --json`
prints; docs/python.md and cli/README.md describe it."""

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
    """One setting of a strategy's knobs, and its step: the buckets of a cap, or the groups of a setting of sharding."""

    step_ms: float
    forward_ms: float
    backward_ms: float
    optimizer_ms: float
    communication_ms: float
    exposed_communication_ms: float
    raw: dict[str, Any] = field(repr=False)
    bucket_cap_mib: float | None = None  # or None, without caps
    buckets: int | None = None
    bucket_bytes: list[int] | None = None  # in launch order
    sharding: dict[str, Any] | None = None  # as in a scenario: /sync/sharding; or None, where nothing is sharded
    groups: int | None = None
    memory_bytes: int | None = None  # peak of everything known
    sharded_peak_bytes: int | None = None  # peak of parameters and gradients


@dataclass(frozen=True)
class Setting(_FromJson):
    """The setting to type in one framework or wrapper, and its step, which is None for one of sharding."""

    typed: str
    raw: dict[str, Any] = field(repr=False)
    buckets: int | None = None
    bucket_bytes: list[int] | None = None
    step_ms: float | None = None
    loss: float | None = None  # share by which it exceeds the best step


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
    default: Plan  # the framework's; where parameters are sharded, the scenario's own setting
    keep_default: bool
    sweep: list[Plan]
    settings: dict[str, Setting]  # by framework, or by place
    notes: list[str]
    raw: dict[str, Any] = field(repr=False)
    plateau_mib: tuple[float | None, float | None] = (None, None)  # lowest and highest cap as good as the best
    # By rising memory, each noticeably faster than the one before; empty where all settings need as much.
    frontier: list[Plan] = field(default_factory=list)

    def _repr_html_(self) -> str:
        from bucketwise._picture import html_of

        return html_of(self)


def _plan(row: dict[str, Any]) -> Plan:
    memory = {"memory_bytes": row["memory"]["most_bytes"]} if "sharding" in row else {}
    return Plan.of(row, **memory)


def _prediction(document: dict[str, Any]) -> Prediction:
    sharded = "sharded" in document
    return Prediction.of(
        document, verdict=Verdict.of(document["verdict"]), best=_plan(document["best"]),
        default=_plan(document["configured" if sharded else "default"]),
        keep_default=document["verdict"]["advice"] == "keep_sharding" if sharded else document["keep_default"],
        plateau_mib=tuple(document.get("plateau_mib", (None, None))),
        sweep=[_plan(row) for row in document["sweep"]], frontier=[_plan(row) for row in document.get("frontier", [])],
        settings={name: Setting.of(setting) for name, setting in document["settings"].items()})


def predict(scenario: Document, *, bucket_cap: str | float | Sequence[str | float] | None = None,
            link: Document | None = None, strategy: str | None = None, set: Mapping[str, Any] | None = None,
            ranks: int | None = None, device: str | None = None, batch: int | None = None, sequence: int | None = None,
            dtype: str | None = None, knobs: bool = False, plan: str | None = None,
            for_: str | Sequence[str] | None = None, framework: str | None = None, trace: str | None = None,
            percentiles: bool = False, draws: int | None = None, nccl_version: str | None = None,
            tune: str | Sequence[str] | None = None, compare_strategies: str | Sequence[str] | None = None) -> Prediction:
    """Returns the prediction of `bucketwise predict SCENARIO --json -`. Options are named as on the command line.

    `scenario` is a file, a model's name, or a mapping with the content of a file; `link` is a file, a preset's name, or
    such a mapping. Files named in a mapping are relative to the current folder. `set` maps JSON pointers to values.
    Raises InputError for refused input, RuntimeError for a failed run, FileNotFoundError without a program.
    """
    options = {"bucket_cap": bucket_cap, "link": link, "strategy": strategy, "set": set, "ranks": ranks,
               "device": device, "batch": batch, "sequence": sequence, "dtype": dtype, "knobs": knobs, "plan": plan,
               "for": for_, "framework": framework, "trace": trace, "percentiles": percentiles, "draws": draws,
               "nccl_version": nccl_version, "tune": tune, "compare_strategies": compare_strategies}
    return _prediction(json.loads(run("predict", scenario, {**options, "json": "-"})))


def sweep(scenario: Document, *, vary: Mapping[str, Any], bucket_cap: str | float | None = None,
          link: Document | None = None, strategy: str | None = None, set: Mapping[str, Any] | None = None,
          ranks: int | None = None, device: str | None = None, batch: int | None = None, sequence: int | None = None,
          dtype: str | None = None, jobs: int | None = None, shard: str | None = None,
          range: bool = False) -> list[dict[str, Any]]:
    """Returns the rows of `bucketwise sweep SCENARIO`, ready for pandas.DataFrame().

    `vary` maps JSON pointers to lists of values, or to ranges as on the command line, such as "8..1024:x2"; the last
    pointer changes fastest. `range` adds where each step may lie if presets are off. Other options and exceptions are
    those of predict().
    """
    options = {"vary": vary, "bucket_cap": bucket_cap, "link": link, "strategy": strategy, "set": set, "ranks": ranks,
               "device": device, "batch": batch, "sequence": sequence, "dtype": dtype, "jobs": jobs,
               "shard": shard, "range": range}
    return [json.loads(line) for line in run("sweep", scenario, options).splitlines()]
