"""predict(): a prediction as data. Every number is the program's; `raw` has all that `predict --json` prints, which
docs/python.md and cli/README.md describe."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from bucketwise._command import Document, run


@dataclass(frozen=True)
class Plan:
    """Buckets at one cap, and the step with them."""

    bucket_cap_mib: float | None  # None: the strategy has no cap
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
    """What to type in a framework, and the step with it."""

    typed: str
    buckets: int
    bucket_bytes: list[int]
    step_ms: float
    loss: float  # over the best step of all, as a share of it
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, setting: dict[str, Any]) -> Setting:
        return cls(setting["typed"], setting["buckets"], setting["bucket_bytes"], setting["step_ms"], setting["loss"], setting)


@dataclass(frozen=True)
class Verdict:
    """What to do, and in one sentence what it brings and how sure that is."""

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
    plateau_mib: tuple[float | None, float | None]  # caps that do as well as the best: lowest, highest
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
    """What `bucketwise predict SCENARIO --json -` says; an option is what the command line calls it.

    `scenario` is a file, a model's name, or, as a mapping, what a file holds; `link` a file, a preset's name, or what a
    file holds. Files that a mapping names lie beside the current folder. `set` has values by JSON pointer. Raises
    InputError for what the program refuses, RuntimeError where it fails, FileNotFoundError where there is no program,
    TypeError for a strategy that shards.
    """
    options = {"bucket_cap": bucket_cap, "link": link, "strategy": strategy, "set": set, "ranks": ranks,
               "device": device, "batch": batch, "dtype": dtype, "plan": plan, "for": for_, "framework": framework,
               "trace": trace, "percentiles": percentiles, "draws": draws, "nccl_version": nccl_version,
               "compare_strategies": compare_strategies}
    return Prediction.of(json.loads(run("predict", scenario, {**options, "json": "-"})))
