"""The raw capture format: what capture writes is what ingest reads, column by column and field by field."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsdp_profile.capture.facts import library_facts, process_facts
from fsdp_profile.capture.recorder import Recorder
from fsdp_profile.capture.sources.device import DeviceSampler
from fsdp_profile.capture.writer import RawWriter
from fsdp_profile.core import layout
from fsdp_profile.core.capture_log import (
    CPU_TABLES,
    FIELDS,
    HOOK_TABLES,
    LIBRARIES,
    PREEXISTING_BLOCKS,
    REGIONS,
    SAMPLE_TABLES,
    EndReason,
    Record,
    Table,
    Type,
    as_columns,
)
from fsdp_profile.core.schema import SpanKind
from fsdp_profile.ingest.rank.capture_log import CaptureLog, read_capture_log

VALUES: dict[Type, tuple[Any, Any]] = {
    Type.INT: (3, 5), Type.ADDRESS: (7, 2**64 - 1), Type.FLOAT: (0.5, None), Type.FLAG: (True, False),
    Type.TEXT: ("a", ""), Type.CODE: (1, 2),
}  # fmt: skip
"""The values of two rows, by type."""


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return [tuple(VALUES[type_][row] for type_ in table.values()) for row in range(2)]


def written(run_dir: Path, *records: tuple[Record, dict[str, Any]]) -> CaptureLog:
    writer = RawWriter(run_dir, 0)
    for kind, content in records:
        writer.write(kind, content)
    writer.close()
    log = read_capture_log(layout.capture_log(run_dir, 0))
    assert log.warnings == []
    return log


def decoded(log: CaptureLog, columns: dict[str, Any], table: Table, *, words: list[str]) -> list[tuple[Any, ...]]:
    """The rows that the reader made of a table, its codes back as what was written."""

    def values(name: str, type_: Type) -> list[Any]:
        if type_ is Type.TEXT:
            return [log.strings.texts[code] for code in columns[name]]
        if type_ is Type.CODE:
            return [words.index(log.strings.texts[code]) for code in columns[name]]
        return list(np.asarray(columns[name]).tolist())

    return list(zip(*(values(name, type_) for name, type_ in table.items()), strict=True))


def test_what_the_hooks_append_is_read_back_whole(tmp_path: Path) -> None:
    recorder = Recorder()
    for name, table in HOOK_TABLES.items():
        setattr(recorder, name, rows_of(table))
    recorder.steps = [11]
    chunk = {"step": 0, "began_ns": 1, **recorder.drain()}
    log = written(tmp_path, (Record.CHUNK, chunk))
    for name, table in HOOK_TABLES.items():
        assert decoded(log, getattr(log, name), table, words=[]) == rows_of(table), name
    assert log.spans["prefetched"].tolist() == [True, False]
    assert (log.step_ends.tolist(), log.began_ns.tolist()) == ([11], [1])
    assert not any(getattr(recorder, name) for name in HOOK_TABLES)


def test_what_the_sources_record_is_read_back_whole(tmp_path: Path) -> None:
    words = ["", "one", "two"]
    cpu = {name: as_columns(table, rows_of(table)) for name, table in CPU_TABLES.items()}
    cpu["allocator"]["transport"] = [-1, 0]
    samples = {name: as_columns(table, rows_of(table)) for name, table in SAMPLE_TABLES.items()}
    chunk = {"step": 4, **Recorder().drain(), "cpu": {"words": words, **cpu}, **samples}
    log = written(tmp_path, (Record.CHUNK, chunk))
    for name, table in CPU_TABLES.items():
        expected = list(zip(*cpu[name].values(), strict=True))
        assert decoded(log, getattr(log, name), table, words=words) == expected, name
    for name in SAMPLE_TABLES:
        read = dict(getattr(log, name))
        if name == "host_states":
            assert read.pop("step") == [4, 4]
        assert read == samples[name], name
    assert log.recorded_steps == {4}


def test_preexisting_blocks_and_unrecorded_steps_are_read_back_whole(tmp_path: Path) -> None:
    blocks = as_columns(PREEXISTING_BLOCKS, rows_of(PREEXISTING_BLOCKS))
    log = written(
        tmp_path,
        (Record.PREEXISTING_BLOCKS, {"t_ns": 9, **blocks}),
        (Record.UNRECORDED_STEPS, {"ends": [1, 2]}),
        (Record.END, {"reason": EndReason.WINDOW_ENDED}),
    )
    ((t_ns, read),) = log.preexisting
    assert (t_ns, decoded(log, read, PREEXISTING_BLOCKS, words=[])) == (9, rows_of(PREEXISTING_BLOCKS))
    assert log.unrecorded_step_ends == [1, 2]
    assert log.end == {"reason": EndReason.WINDOW_ENDED}


@pytest.mark.parametrize(("table", "column"), [(n, c) for n, t in HOOK_TABLES.items() for c in t])
def test_a_row_with_one_value_too_few_or_too_many_is_not_written(table: str, column: str) -> None:
    recorder = Recorder()
    row = dict(zip(HOOK_TABLES[table], rows_of(HOOK_TABLES[table])[0], strict=True))
    setattr(recorder, table, [tuple(value for name, value in row.items() if name != column)])
    with pytest.raises(ValueError, match="zip"):
        recorder.drain()
    setattr(recorder, table, [(*row.values(), 0)])
    with pytest.raises(ValueError, match="zip"):
        recorder.drain()


def test_the_hooks_append_rows_of_their_tables() -> None:
    recorder = Recorder()
    recorder.span(1, SpanKind.FORWARD.value, 0)
    assert all(len(row) == len(HOOK_TABLES["spans"]) for row in recorder.spans)
    assert all(len(row) == len(HOOK_TABLES["phases"]) for row in recorder.phases)
    sampler = DeviceSampler(interval_s=1)
    sampler.sample()
    assert list(sampler.drain()) == list(SAMPLE_TABLES["device"])


def test_facts_are_the_fields_of_their_records() -> None:
    assert tuple(process_facts(0)) == FIELDS[Record.RANK]
    assert set(library_facts()) <= set(LIBRARIES)
    assert FIELDS.keys() == set(Record)


def test_a_region_is_no_kind_of_span() -> None:
    assert not {kind.value for kind in SpanKind} & set(REGIONS)


def test_a_log_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl"
    records = [
        {"kind": "held", "t_ns": 9, "address": [1], "size_bytes": [2]},
        {"kind": "bare_steps", "ends": [1]},
        {
            "kind": "chunk", "step": 0, "steps": [],
            **{name: {column: [] for column in table} for name, table in HOOK_TABLES.items()},
            "spans": {"unit": [0], "kind": ["FORWARD"], "start_ns": [1], "end_ns": [2], "size_bytes": [0],
                      "prefetched": [True]},
        },
    ]  # fmt: skip
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    log = read_capture_log(path)
    assert log.warnings == []
    assert (log.preexisting[0][0], log.unrecorded_step_ends) == (9, [1])
    assert (log.spans["prefetched"].tolist(), log.spans["prefetch"].tolist()) == ([True], [0])
