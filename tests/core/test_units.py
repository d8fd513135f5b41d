"""The strategy of a job, from the columns of its units."""

from dataclasses import asdict
from typing import Any

import pytest

from fsdp_profile.core.schema import TABLES, Strategy, UnitKind
from fsdp_profile.core.units import KINDS, UnitDescription, find_strategy, is_bucket, is_unsharded, keeps_gathered


def unit(kind: UnitKind, name: str = "layers.0", **columns: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "numel": 1, "num_params": 1, "sharded_bytes": 4, "unsharded_bytes": 8, "dtype": "float32",
        "compute_dtype": "float32", "shard_size": 2, "replicate_size": 1,
    }  # fmt: skip
    return asdict(UnitDescription(name=name, kind=kind, **{**facts, **columns}))


def fsdp1(sharding: str, **columns: Any) -> dict[str, Any]:
    return unit(UnitKind.FSDP1, sharding=sharding, reshard_after_forward="no", **columns)


def fsdp2(reshard: str, name: str = "layers.0", **columns: Any) -> dict[str, Any]:
    return unit(UnitKind.FSDP2, name, reshard_after_forward=reshard, **columns)


BUCKET = unit(UnitKind.DDP_BUCKET, "bucket 0", shard_size=1, replicate_size=4)


@pytest.mark.parametrize(
    ("units", "strategy", "detail"),
    [
        ([BUCKET, BUCKET], Strategy.DDP, "DDP, 2 buckets, 4 ranks"),
        ([fsdp1("FULL_SHARD")], Strategy.FSDP1, "FSDP1 FULL_SHARD, 1 units, 4 ranks"),
        ([fsdp1("NO_SHARD", shard_size=1, replicate_size=4)], Strategy.FSDP1, "FSDP1 NO_SHARD, 1 units, 4 ranks"),
        (
            [fsdp1("HYBRID_SHARD", replicate_size=2)],
            Strategy.HSDP, "HSDP (FSDP1), 2 replicas of 2 shards, 4 ranks",
        ),
        ([fsdp2("no", ""), fsdp2("yes")], Strategy.FSDP2, "FSDP2 reshard_after_forward=True, 2 units, 4 ranks"),
        ([fsdp2("no", "")], Strategy.FSDP2, "FSDP2 reshard_after_forward=False, 1 units, 4 ranks"),
        ([fsdp2("2")], Strategy.FSDP2, "FSDP2 reshard_after_forward=2, 1 units, 4 ranks"),
        ([fsdp2("yes"), fsdp2("no")], Strategy.FSDP2, "FSDP2 reshard_after_forward=mixed, 2 units, 4 ranks"),
        (
            [fsdp2("yes", shard_size=1, replicate_size=4)],
            Strategy.HSDP, "HSDP (FSDP2), 4 replicas of 1 shard, 4 ranks",
        ),
        ([BUCKET, fsdp2("yes")], Strategy.FSDP2, "FSDP2 reshard_after_forward=True, 1 units, 4 ranks"),
    ],
)  # fmt: skip
def test_the_strategy_follows_from_the_units(units: list[dict[str, Any]], strategy: Strategy, detail: str) -> None:
    assert find_strategy(units, 4) == (strategy, detail)


def test_units_stay_gathered_by_their_own_columns_whatever_the_root_does() -> None:
    assert keeps_gathered([fsdp2("yes", ""), fsdp2("no")])
    assert not keeps_gathered([fsdp2("no", ""), fsdp2("yes")])
    assert keeps_gathered([fsdp1("SHARD_GRAD_OP")])
    assert not keeps_gathered([fsdp1("FULL_SHARD")])


def test_only_no_shard_is_unsharded() -> None:
    assert is_unsharded([fsdp1("NO_SHARD", shard_size=1)])
    assert not is_unsharded([fsdp2("yes", shard_size=1)])
    assert not is_unsharded([])


def test_every_kind_of_unit_has_its_row() -> None:
    assert KINDS.keys() == set(UnitKind)
    assert [str(kind) for kind in UnitKind if is_bucket(kind)] == ["DDP_BUCKET"]


def test_a_description_has_every_column_of_the_units_table() -> None:
    described = UnitDescription.__dataclass_fields__.keys()
    assert {column.name for column in TABLES["units"]} - {"unit"} == described - {"group", "group_description"}
