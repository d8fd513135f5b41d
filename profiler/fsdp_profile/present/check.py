"""The verdicts of a check: its summary, and one row per check."""

from collections.abc import Sequence
from typing import Final

from fsdp_profile.analysis.check.result import Check, CheckReport
from fsdp_profile.present.values import NOT_RECORDED, Sentence, Table, Unit, column, name, say, table, value_text

_UNITS: Final = {"bytes": Unit.BYTES, "ns": Unit.NS, "ratio": Unit.RATIO}


def is_requested(check: Check) -> bool:
    """Whether a check that holds is shown by itself: a given limit, or the peak against a baseline."""
    return "/" not in check.name or check.name == "baseline/peak"


def summary(found: CheckReport) -> Sentence:
    """How many checks failed, and against which baselines."""
    against = [f" against {', '.join(found.baselines)}"] if found.baselines else []
    names = [name(text) for text in against]
    if not found.failed:
        return say(f"all {len(found.checks)} checks hold", *names)
    return say(f"{len(found.failed)} of {len(found.checks)} checks failed", *names)


def checks_table(checks: Sequence[Check]) -> Table:
    """One row per check: its verdict, what was measured, and what passes."""
    return table(
        "",
        [
            column("check", Unit.NAME, [check.name for check in checks]),
            column("verdict", Unit.TEXT, [check.verdict.label for check in checks]),
            column("measured", Unit.NUMBER, [_text(check.measured, check.unit) for check in checks]),
            column(
                "baseline",
                Unit.NUMBER,
                ["" if check.baseline is None else _text(check.baseline, check.unit) for check in checks],
            ),
            column("limit", Unit.NUMBER, [_text(check.limit, check.unit) for check in checks]),
            column("message", Unit.NAME, [check.message for check in checks]),
        ],
    )


def _text(value: float | None, unit: str) -> str:
    if value is None:
        return NOT_RECORDED
    return value_text(value, _UNITS[unit]) if unit in _UNITS else f"{value:g}"
