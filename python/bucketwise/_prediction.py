"""predict(): a prediction as data. Every number is the program's. `raw` holds everything that `predict --json` prints;
docs/python.md and cli/README.md describe it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from bucketwise._command import Document, run


@dataclass(frozen=True)
class Plan:
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

    @classmethod
    def of(cls, row: dict[str, Any]) -> Plan:
        return cls(row["bucket_cap_mib"], row["buckets"], row["bucket_bytes"], row["step_ms"], row["forward_ms"],
                   row["backward_ms"], row["optimizer_ms"], row["communication_ms"], row["exposed_communication_ms"], row)


@dataclass(frozen=True)
class Setting:
    """A framework's setting to type, and its step."""

    typed: str
    buckets: int
    bucket_bytes: list[int]
    step_ms: float
    loss: float  # share by which it exceeds the best step
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, setting: dict[str, Any]) -> Setting:
        return cls(setting["typed"], setting["buckets"], setting["bucket_bytes"], setting["step_ms"], setting["loss"], setting)


@dataclass(frozen=True)
class Verdict:
    """The advice, and one sentence on its gain and certainty."""

    advice: str
    text: str
    raw: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Prediction:
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

    @classmethod
    def of(cls, document: dict[str, Any]) -> Prediction:
        if "sharded" in document:
            raise TypeError(f"{document['scenario']} has the strategy {document['strategy']}, which shards: "
                            "bucketwise.predict_sharded() takes it")
        verdict = document["verdict"]
        low, high = document["plateau_mib"]
        return cls(document["scenario"], document["strategy"], document["ranks"], document["link"],
                   Verdict(verdict["advice"], verdict["text"], verdict), Plan.of(document["best"]),
                   Plan.of(document["default"]), document["keep_default"], (low, high),
                   [Plan.of(row) for row in document["sweep"]],
                   {name: Setting.of(setting) for name, setting in document["settings"].items()}, document["notes"], document)

    def _repr_html_(self) -> str:
        from bucketwise._picture import html_of

        return html_of(self)


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
    return Prediction.of(json.loads(run("predict", scenario, {**options, "json": "-"})))
