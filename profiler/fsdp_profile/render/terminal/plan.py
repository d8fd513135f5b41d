"""Plans as text: a table of layouts, the formulas behind it, what fits, and what a search found."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.core.text import plain
from fsdp_profile.plan.calibrate import Verification
from fsdp_profile.plan.formulas.costs import Basis, PlanRow
from fsdp_profile.plan.formulas.devices import Device
from fsdp_profile.plan.formulas.search import Found
from fsdp_profile.present import plan as present
from fsdp_profile.render.terminal.palette import QUIET, WARNING
from fsdp_profile.render.terminal.parts import facts, heading, lines, note, sections
from fsdp_profile.render.terminal.stack import StackedBar
from fsdp_profile.render.terminal.values import grid_of, sentence_lines, sentence_text, table_grid


def plan_report(
    rows: Sequence[PlanRow], *, devices: Sequence[Device], title: str, subtitle: str = "",
    remarks: Sequence[str] = (), explain: bool = False,
) -> RenderableType:  # fmt: skip
    """The whole page."""
    return sections(
        [
            Group(Text(title, style="bold"), *([note(subtitle)] if subtitle else [])),
            table_grid(present.plan_table(rows, devices)),
            _composition(rows),
            *([_formulas(row) for row in rows if row.terms] if explain else []),
            lines(remarks, style=WARNING) if remarks else None,
            note(present.LEFT_OUT) if any(row.basis is not Basis.MEASURED for row in rows) else None,
        ]
    )


def search_report(found: Sequence[Found], *, title: str) -> RenderableType:
    """What a search found, with the reason."""
    why = Group(heading("Why"), sentence_lines(present.reasons(found)))
    return sections([Text(title, style="bold"), table_grid(present.search_table(found)), why, note(present.LEFT_OUT)])


def verification_report(found: Verification) -> RenderableType:
    """A prediction beside the run that was recorded to test it."""
    rows = [found.predicted, found.measured]
    predicted, measured = (bytes_text(row.peak_bytes) for row in rows)
    title = f"Predicted {predicted}, measured {measured}: {found.error_ratio:+.1%}"
    return sections([Text(title, style="bold"), _composition(rows)])


def _composition(rows: Sequence[PlanRow]) -> RenderableType | None:
    """Peaks that were simulated or calibrated, by category, on one scale."""
    shown = [row for row in rows if row.by_category]
    if not shown:
        return None
    scale = max(row.peak_bytes or 0 for row in shown)
    bars = [StackedBar(by_category=present.categories_of(row), scale_bytes=scale) for row in shown]
    by_row = table_grid(present.peaks_table(shown), drawn=bars)
    by_category, remarks = grid_of(present.peak_categories_table(shown)), present.remarks(shown)
    parts = [Text(), by_category, *([Text(), sentence_lines(remarks)] if remarks else [])]
    return None if by_row is None else Group(by_row, *parts)


def _formulas(row: PlanRow) -> RenderableType:
    """Each term: its formula, the same with numbers, the bytes, and where it comes from."""
    terms = [
        (fact.label, sentence_text(fact.value, style="" if fact.label else QUIET))
        for fact in present.formula_facts(row)
    ]
    title = heading(plain(present.formula_heading(row)), "how it was calculated")
    return Group(title, facts(terms), note(present.LETTERS))
