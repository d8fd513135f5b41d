"""Categories by tag, region and lifetime: the smallest log that shows each rule."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fsdp_profile.core.schema import NO_UNIT, NOT_FREED
from fsdp_profile.ingest.rank import convert
from fsdp_profile.ingest.rank.capture_log import read_capture_log
from fsdp_profile.ingest.rank.convert import rank_tables

FIRST_FORWARD = 100
STEP_ENDS = [400, 800]
PHASES = [
    (0, "SETUP"), (100, "FORWARD"), (200, "BACKWARD"), (300, "OTHER"), (320, "OPTIMIZER"), (380, "OTHER"),
    (500, "FORWARD"), (600, "BACKWARD"), (700, "OTHER"), (720, "OPTIMIZER"), (780, "OTHER"),
]  # fmt: skip


def columns(names: str, rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names.split())}


def tables_of(
    folder: Path,
    *,
    blocks: list[tuple[int, int, int, int | None]],
    tags: list[tuple[Any, ...]] = (),
    spans: list[tuple[Any, ...]] = (),
    transport: list[tuple[Any, ...]] = (),
    under: dict[int, int] | None = None,
    operator: str = "aten::empty",
) -> Any:
    """Tables of a two-step rank with these blocks (address, size, start, free).

    tags: (t, address, category, unit, weak); spans: (unit, kind, start, end); transport: (name, start, end, thread);
    under: address -> row of the transport operator it was allocated under.
    """
    words = ["", operator, *dict.fromkeys(row[0] for row in transport)]
    events = [(t, a, size, (under or {}).get(a, -1)) for a, size, t, _ in blocks]
    events += [(free, a, -size, -1) for a, size, _, free in blocks if free is not None]
    events.sort()
    total, allocator = 0, []
    for t, address, delta, row in events:
        total += delta
        allocator.append((t, address, delta, total, 1, row))
    chunk = {
        "kind": "chunk",
        "step": 1,
        "cpu": {
            "words": words,
            "allocator": columns("t_ns address delta_bytes reported_bytes operator transport", allocator),
            "transport": columns("name start_ns end_ns thread", [(words.index(n), *rest) for n, *rest in transport]),
            "operators": columns("name start_ns end_ns thread", []),
        },
        "tags": columns(
            "t_ns address size_bytes category unit name weak",
            [(t, a, 0, category, unit, "w", weak) for t, a, category, unit, weak in tags],
        ),
        "spans": columns("unit kind start_ns end_ns size_bytes prefetched", [(*s, 0, False) for s in spans]),
        "calls": columns("collective start_ns end_ns size_bytes group_size unit prefetched", []),
        "phases": columns("t_ns phase", PHASES),
        "drops": columns("t_ns address", []),
        "steps": STEP_ENDS,
    }
    records = [{"kind": "rank", "rank": 0, "start_ns": 0}, {"kind": "first_forward", "t_ns": FIRST_FORWARD}, chunk]
    path = folder / "capture.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    log = read_capture_log(path)
    assert log.warnings == []
    return rank_tables(log)


def categories(tables: Any) -> list[tuple[str, str, int]]:
    table = tables["allocations"]
    return [(r["category"], r["basis"], r["unit"]) for r in table.select(["category", "basis", "unit"]).to_pylist()]


def test_a_tag_counts_back_to_the_alloc(tmp_path: Path) -> None:
    found = tables_of(tmp_path, blocks=[(1, 8, 10, None)], tags=[(150, 1, "PARAM", 3, False)])
    assert categories(found) == [("PARAM", "TAG", 3)]
    assert found["allocations"].column("start_ns").to_pylist() == [10]


def test_a_later_tag_of_another_category_begins_a_new_part(tmp_path: Path) -> None:
    found = tables_of(
        tmp_path,
        blocks=[(1, 8, 210, 790), (2, 4, 255, 260)],
        tags=[(250, 1, "UNSHARDED_GRAD", 0, False), (310, 1, "GRAD", 0, False)],
    )["allocations"]
    rows = found.select(["allocation", "category", "start_ns", "end_ns", "start_event", "end_event"]).to_pylist()
    assert [tuple(r.values()) for r in rows if r["allocation"] == 0] == [
        (0, "UNSHARDED_GRAD", 210, 310, 0, 3),
        (0, "GRAD", 310, 790, 3, 3),
    ]


def test_a_weak_tag_gives_way_and_else_holds(tmp_path: Path) -> None:
    found = tables_of(
        tmp_path,
        blocks=[(1, 8, 10, None), (2, 8, 20, 90)],
        tags=[
            (15, 1, "UNSHARDED_PARAM", -1, True),
            (25, 2, "UNSHARDED_PARAM", -1, True),
            (50, 1, "PARAM", -1, False),
        ],
    )
    assert categories(found) == [("PARAM", "TAG", NO_UNIT), ("UNSHARDED_PARAM", "TAG", NO_UNIT)]


def test_a_tag_names_the_block_alive_at_its_time_and_no_other(tmp_path: Path) -> None:
    found = tables_of(
        tmp_path,
        blocks=[(1, 8, 110, 120), (1, 8, 130, 140)],
        tags=[(125, 1, "BUFFER", -1, False), (135, 1, "OPTIMIZER_STATE", -1, False)],
    )
    assert categories(found) == [("TEMPORARY", "LIFETIME", NO_UNIT), ("OPTIMIZER_STATE", "TAG", NO_UNIT)]


@pytest.mark.parametrize(
    ("start", "free", "expected"),
    [
        (110, 190, "TEMPORARY"),
        (110, 250, "ACTIVATION"),
        (110, None, "ACTIVATION"),
        (210, 290, "TEMPORARY"),
        (330, 370, "OPTIMIZER_TEMPORARY"),
        (450, 490, "TEMPORARY"),
        (450, 650, "INPUT"),
        (90, 390, "INPUT"),
        (50, 95, "TEMPORARY"),
        (50, None, "UNKNOWN"),
        (50, 900, "UNKNOWN"),
        (330, None, "UNKNOWN"),
        (210, 330, "UNKNOWN"),
    ],
)
def test_without_a_tag_the_lifetime_decides(tmp_path: Path, start: int, free: int | None, expected: str) -> None:
    basis = "NONE" if expected == "UNKNOWN" else "LIFETIME"
    found = tables_of(tmp_path, blocks=[(1, 8, start, free)])
    assert categories(found) == [(expected, basis, NO_UNIT)]


def test_regions_of_a_unit_decide_before_the_lifetime(tmp_path: Path) -> None:
    found = tables_of(
        tmp_path,
        blocks=[(1, 1, 112, 190), (2, 1, 122, 290), (3, 1, 232, 390), (4, 1, 152, 260)],
        spans=[
            (7, "FORWARD", 105, 195),
            (7, "ALL_GATHER", 110, 115),
            (8, "FORWARD", 120, 130),
            (7, "REDUCE", 230, 240),
        ],
    )
    assert categories(found) == [
        ("ALL_GATHER", "REGION", 7),
        ("ACTIVATION", "LIFETIME", 8),
        ("ACTIVATION", "LIFETIME", 7),
        ("REDUCE_SCATTER", "REGION", 7),
    ]


def test_what_a_forward_inside_backward_keeps_is_recomputed_activation(tmp_path: Path) -> None:
    found = tables_of(tmp_path, blocks=[(1, 1, 222, 280)], spans=[(2, "FORWARD", 220, 230)])
    assert categories(found) == [("ACTIVATION", "LIFETIME", 2)]


def test_what_a_checkpoint_makes_again_and_keeps_is_activation_of_the_unit_in_backward(tmp_path: Path) -> None:
    found = tables_of(
        tmp_path,
        blocks=[(1, 1, 222, 280), (2, 1, 223, 225), (3, 1, 242, 280), (4, 1, 227, 233)],
        spans=[
            (7, "BACKWARD", 205, 290),
            (2, "BACKWARD", 210, 270),
            (-1, "RECOMPUTE_REGION", 220, 240),
            (5, "FORWARD", 226, 230),
        ],
    )
    # 4 outlives the forward of a unit inside the recomputation, but not the recomputation.
    assert categories(found) == [
        ("ACTIVATION", "LIFETIME", 2),
        ("TEMPORARY", "LIFETIME", NO_UNIT),
        ("TEMPORARY", "LIFETIME", 5),
        ("TEMPORARY", "LIFETIME", NO_UNIT),
    ]
    names = [r["name"] for r in found["allocations"].to_pylist()]
    assert names == ["recomputed", "", "", ""]
    assert "RECOMPUTE_REGION" not in found["unit_spans"].column("kind").to_pylist()


def test_the_result_of_a_functional_collective_ends_with_its_transport_when_no_free_was_seen(tmp_path: Path) -> None:
    found = tables_of(
        tmp_path,
        blocks=[(1, 64, 220, None), (2, 64, 240, None)],
        tags=[(300, 2, "PARAM", -1, False)],
        transport=[
            ("c10d::allreduce_", 221, 222, 1),
            ("gloo:all_reduce", 223, 230, 2),
            ("c10d::allreduce_", 241, 242, 1),
            ("gloo:all_reduce", 243, 250, 2),
        ],
        operator="_c10d_functional::all_reduce",
    )
    # A tag names the second after its transport ended: it is alive.
    assert categories(found) == [("TEMPORARY", "LIFETIME", NO_UNIT), ("PARAM", "TAG", NO_UNIT)]
    assert found["allocations"].column("end_ns").to_pylist() == [230, NOT_FREED]


def test_scratch_of_the_transport_in_backward_is_the_buckets(tmp_path: Path) -> None:
    found = tables_of(
        tmp_path,
        blocks=[(1, 64, 220, None)],
        transport=[("c10d::allreduce_", 219, 221, 1), ("gloo:all_reduce", 222, 240, 2)],
        under={1: 0},
    )
    assert categories(found) == [("BUCKET", "REGION", NO_UNIT)]
    block = found["allocations"].to_pylist()[0]
    assert (block["end_ns"], block["free_unreported"]) == (240, True)
    collective = found["collectives"].to_pylist()[0]
    assert (collective["kind"], collective["issue_ns"], collective["start_ns"], collective["end_ns"]) == (
        "ALL_REDUCE", 219, 222, 240,
    )  # fmt: skip
    assert collective["size_bytes"] is None


def test_steps_and_phases_are_cut_at_the_steps_ends(tmp_path: Path) -> None:
    found = tables_of(tmp_path, blocks=[(1, 8, 10, 900)])
    steps = [tuple(r.values()) for r in found["steps"].to_pylist()]
    assert steps == [
        (-1, 0, 100, True, True),
        (0, 100, 400, True, True),
        (1, 400, 800, True, True),
        (-2, 800, 900, False, False),
    ]
    rows = [tuple(r.values()) for r in found["phases"].to_pylist()]
    assert rows[4:7] == [(0, "OPTIMIZER", 320, 380), (0, "OTHER", 380, 400), (1, "OTHER", 400, 500)]
    assert all(a[3] == b[2] for a, b in pairwise(rows))


def test_the_pause_in_which_the_capture_wrote_belongs_to_no_step(tmp_path: Path) -> None:
    tables_of(tmp_path, blocks=[(1, 8, 10, 900)])
    path = tmp_path / "capture.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    empty = {**records[2], "cpu": {**records[2]["cpu"]}, "steps": [], "began_ns": 430}
    for name in ("tags", "spans", "calls", "phases", "drops"):
        empty[name] = {column: [] for column in records[2][name]}
    for name in ("allocator", "transport", "operators"):
        empty["cpu"][name] = {column: [] for column in records[2]["cpu"][name]}
    path.write_text("".join(json.dumps(r) + "\n" for r in [*records, empty]))
    found = rank_tables(read_capture_log(path))
    steps = [(r["step"], r["start_ns"], r["end_ns"]) for r in found["steps"].to_pylist()]
    assert steps == [(-1, 0, 100), (0, 100, 400), (1, 430, 800), (-2, 800, 900)]
    rows = [tuple(r.values()) for r in found["phases"].to_pylist()]
    assert rows[5:7] == [(0, "OTHER", 380, 400), (1, "OTHER", 430, 500)]


def test_unsharded_spans_run_from_the_gather_to_the_reshard(tmp_path: Path) -> None:
    found = tables_of(
        tmp_path,
        blocks=[(1, 8, 110, 190)],
        spans=[
            (0, "ALL_GATHER", 110, 115), (0, "RESHARD", 150, 151), (1, "ALL_GATHER", 152, 153),
            (0, "ALL_GATHER", 210, 212), (0, "RESHARD", 240, 242),
        ],
    )["unit_spans"]  # fmt: skip
    rows = found.select(["unit", "start_ns", "end_ns", "kind"]).to_pylist()
    unsharded = [(r["unit"], r["start_ns"], r["end_ns"]) for r in rows if r["kind"] == "UNSHARDED"]
    assert unsharded == [(0, 110, 151), (1, 152, (1 << 63) - 1), (0, 210, 242)]


def test_what_one_root_made_and_another_is_given_is_an_activation_not_the_batch(tmp_path: Path) -> None:
    """Blocks wrapped without a root around them are roots each: the second one's input was made in forward."""
    batch, between = (1, 8, 90, 390), (2, 8, 120, 250)
    tags = [(101, 1, "INPUT", -1, False), (130, 2, "INPUT", -1, False)]
    found = tables_of(tmp_path, blocks=[batch, between], tags=tags)
    assert categories(found) == [("INPUT", "TAG", NO_UNIT), ("ACTIVATION", "LIFETIME", NO_UNIT)]


def test_a_rank_of_many_events_has_a_pyramid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [(1, 8, 10, 900), (2, 16, 120, 300)]
    assert "memory_pyramid" not in tables_of(tmp_path, blocks=blocks)
    monkeypatch.setattr(convert, "MIN_EVENTS", 4)
    found = tables_of(tmp_path, blocks=blocks)["memory_pyramid"]
    # Four events are one bin: the first, the greatest, the last, which is the least.
    assert [tuple(r[name] for name in ("level", "event", "allocated_bytes")) for r in found.to_pylist()] == [
        (0, 0, 8), (0, 1, 24), (0, 3, 0)
    ]  # fmt: skip
