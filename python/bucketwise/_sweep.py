"""sweep(): a row for every combination of values."""

from __future__ import annotations

import json
from typing import Any, Mapping

from bucketwise._command import Document, run


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
