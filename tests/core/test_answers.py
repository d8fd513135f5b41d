"""Tables that the analysis returns are the declared ones."""

import sys

import pyarrow as pa
import pytest
from recording import ROOT

from fsdp_profile.analysis.collectives.cross_rank import cross_rank
from fsdp_profile.analysis.collectives.timeline import collective_calls
from fsdp_profile.analysis.collectives.traffic import traffic
from fsdp_profile.analysis.run import load_run
from fsdp_profile.analysis.time.breakdown import exposed_by_step
from fsdp_profile.analysis.units.in_flight import gathers
from fsdp_profile.core.answers import ANSWERS
from fsdp_profile.export.table import table_of

TYPES = {"double": "float64"}


def answered(name: str, sample: str) -> pa.Table:
    run = load_run(ROOT / "sample_runs" / sample)
    across = cross_rank(run)
    return {
        "timeline": lambda: table_of(run, table="timeline", rank=0).drop_columns(["rank"]),
        "peaks": lambda: table_of(run, table="peaks", rank=0).drop_columns(["rank"]),
        "unit_totals": lambda: table_of(run, table="unit_totals", rank=0).drop_columns(["rank"]),
        "gathers": lambda: gathers(run, rank=0),
        "collective_calls": lambda: collective_calls(run, across, rank=None),
        "matched_collectives": lambda: across.collectives,
        "matched_calls": lambda: across.calls,
        "traffic": lambda: traffic(run, rank=0),
        "exposed_by_step": lambda: exposed_by_step(run, rank=0),
    }[name]()


@pytest.mark.parametrize("sample", ["gpt-fsdp2-2ranks", "gpt-ddp-2ranks", "gpt-hsdp-4ranks"])
@pytest.mark.parametrize("name", ANSWERS)
def test_a_table_has_the_declared_columns(name: str, sample: str) -> None:
    found = answered(name, sample)
    assert [(f.name, TYPES.get(str(f.type), str(f.type))) for f in found.schema] == [
        (c.name, c.type) for c in ANSWERS[name]
    ]
    assert {f.name for f in found.schema if found.column(f.name).null_count} <= {
        c.name for c in ANSWERS[name] if c.nullable
    }


def test_the_page_of_the_tables_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import analysis_tables

    assert analysis_tables.PAGE.read_text(encoding="utf-8") == analysis_tables.page()
    sys.modules.pop("analysis_tables")
