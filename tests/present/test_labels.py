"""No code of an enum is in a table or a sentence that people read; names from a run are shown as they are."""

import re

import pytest
from recording import ROOT

from fsdp_profile.analysis.compare.peaks import compare
from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.memory.ledger import blocks_at, peak, peak_of_phases, peak_of_steps
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import CollectiveKind, Phase
from fsdp_profile.present import compare as comparison
from fsdp_profile.present import memory
from fsdp_profile.present.values import Table

CODES = {str(word) for words in (Category, Phase, CollectiveKind) for word in words} - {"OTHER"}
DDP, FSDP2 = (load_run(ROOT / "sample_runs" / name) for name in ("gpt-ddp-2ranks", "gpt-fsdp2-2ranks"))


def codes_in(text: str) -> set[str]:
    return CODES & set(re.findall(r"[A-Z_]+", text))


def tables() -> list[Table]:
    found = peak(FSDP2, rank=0)
    assert found is not None
    both = compare([DDP, FSDP2])
    blocks = blocks_at(FSDP2, rank=0, event=found.event)
    return [
        memory.categories_table(found.by_category),
        memory.steps_table(peak_of_steps(FSDP2, rank=0), num_steps=2),
        memory.step_categories_table(peak_of_steps(FSDP2, rank=0)),
        memory.phases_table(peak_of_phases(FSDP2, rank=0)),
        memory.blocks_table(blocks, found, {}, max_rows=20),
        comparison.peaks_table(both),
        comparison.categories_table(both),
        comparison.phases_table(both),
        comparison.units_table(both),
        comparison.costs_table(both),
    ]


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.title or "step by step")
def test_tables_have_labels(table):
    said = [table.title, table.note, *(column.label for column in table.columns)]
    assert not codes_in(" ".join([*said, *(cell for row in table.rows() for cell in row)]))


@pytest.mark.parametrize("run", [DDP, FSDP2], ids=lambda run: run.name)
def test_sentences_and_findings_have_labels(run):
    said = [memory.verdict(peak(run, rank=0)).text, *(one.claim for one in findings(run))]
    assert not codes_in(" ".join(said))
