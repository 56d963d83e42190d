"""predict_sharded(): the prediction of a sharded scenario as data. `raw` holds all that `predict --json` prints."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from bucketwise._command import Document, run
from bucketwise._prediction import Verdict

@dataclass(frozen=True)
class ShardedPlan:
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

    @classmethod
    def of(cls, row: dict[str, Any]) -> ShardedPlan:
        return cls(row["sharding"], row["groups"], row["step_ms"], row["forward_ms"], row["backward_ms"],
                   row["optimizer_ms"], row["communication_ms"], row["exposed_communication_ms"],
                   row["memory"]["most_bytes"], row["sharded_peak_bytes"], row)


@dataclass(frozen=True)
class ShardedPrediction:
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

    @classmethod
    def of(cls, document: dict[str, Any]) -> ShardedPrediction:
        if "sharded" not in document:
            raise TypeError(f"{document['scenario']} has the strategy {document['strategy']}, which does not shard: "
                            "bucketwise.predict() takes it")
        return cls(document["scenario"], document["strategy"], document["ranks"], document["link"],
                   Verdict(document["verdict"]["advice"], document["verdict"]["text"], document["verdict"]),
                   ShardedPlan.of(document["best"]), ShardedPlan.of(document["configured"]),
                   [ShardedPlan.of(row) for row in document["frontier"]],
                   [ShardedPlan.of(row) for row in document["sweep"]],
                   {place: setting["typed"] for place, setting in document["settings"].items()}, document["notes"], document)


def predict_sharded(scenario: Document, *, link: Document | None = None, strategy: str | None = None,
                    set: Mapping[str, Any] | None = None, ranks: int | None = None, device: str | None = None,
                    batch: int | None = None, dtype: str | None = None, plan: str | None = None,
                    compare_strategies: str | Sequence[str] | None = None, trace: str | None = None,
                    nccl_version: str | None = None) -> ShardedPrediction:
    """predict() for the strategies fsdp, hsdp and zero3. Raises TypeError for any other."""
    options = {"link": link, "strategy": strategy, "set": set, "ranks": ranks, "device": device, "batch": batch,
               "dtype": dtype, "plan": plan, "compare_strategies": compare_strategies, "trace": trace,
               "nccl_version": nccl_version}
    return ShardedPrediction.of(json.loads(run("predict", scenario, {**options, "json": "-"})))
