"""Values of an analysis to tables that people read and sort.

Sizes are numbers in one unit per table, named in the header, so that a click on it sorts. What was not
recorded is an empty cell, which the page shows as "not recorded".
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fsdp_dashboard.charts.labels import ByteScale
from fsdp_dashboard.data import RunFacts
from fsdp_profile.present.overview import receipt_facts, run_facts
from fsdp_profile.present.values import NOT_RECORDED, Fact, say

_DECIMALS = 3


def column_names(runs: Sequence[RunFacts]) -> list[str]:
    """The runs by their strategies, where those differ: a phone has no room for their names."""
    strategies = [run.manifest.strategy.label for run in runs]
    return strategies if len(set(strategies)) == len(runs) else [run.label for run in runs]


def facts_table(runs: Sequence[RunFacts]) -> pa.Table:
    """What ran where and what recording it cost, one column per run."""
    facts = [_facts(run) for run in runs]
    labels = list(dict.fromkeys(fact.label for mine in facts for fact in mine))
    columns: dict[str, list[str | None]] = {"fact": list(labels)}
    for name, mine in zip(column_names(runs), facts, strict=True):
        values = {fact.label: fact.value.text for fact in mine}
        columns[name] = [values.get(label) for label in labels]
    return pa.table(columns)


def _facts(run: RunFacts) -> list[Fact]:
    endings = ", ".join(sorted({r.ending.label for r in run.manifest.ranks})) or NOT_RECORDED
    return [
        Fact(label="run", value=say(run.label)),
        *run_facts(run.manifest, run.ranks),
        Fact(label="ranks ended", value=say(endings)),
        *receipt_facts(run.manifest),
    ]


def size_cells(sizes: Sequence[int | None], scale: ByteScale) -> Any:
    """A column of bytes in the unit of a scale; None is an empty cell."""
    found = [None if size is None else round(float(scale.of(size)), _DECIMALS) for size in sizes]
    return pa.array(found, pa.float64())
