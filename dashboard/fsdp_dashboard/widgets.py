"""Pieces that several pages draw: a figure, a table, one clear message where something is wrong."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import streamlit as st

from fsdp_dashboard import data, state
from fsdp_dashboard.charts.labels import Figure
from fsdp_dashboard.charts.legend import legend_html
from fsdp_dashboard.data import Catalogue, RunFacts, RunRef
from fsdp_dashboard.text import code, prose
from fsdp_dashboard.values import arrow_table
from fsdp_dashboard.views import PAGES
from fsdp_profile.core.errors import FsdpProfileError
from fsdp_profile.present.values import Table

_PLOTLY: Final = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
}


_MAX_ROWS: Final = 14
_SCROLLED_PX: Final = 386  # ten rows under the header
_PINNED_CHARS: Final = 20
"""A first column that is not wider stays in view while the others are scrolled."""
_STYLE: Final = """<style>
@supports (animation-timeline: --columns) {
  [class*="st-key-table"] { timeline-scope: --columns }
  [class*="st-key-table"] .dvn-scroller { scroll-timeline: --columns inline }
  [class*="st-key-table"]::after {  /* has a size while there is something to scroll to */
    content: "More columns to the right: swipe, or scroll sideways \\2192";
    font-size: 0; opacity: 0.65; margin-top: -0.75rem;
    animation: more-columns linear both; animation-timeline: --columns;
  }
}
@keyframes more-columns { 0%, 98% { font-size: 0.75rem } 100% { font-size: 0 } }
[data-testid="stSidebarNavLink"]:focus-visible, [data-testid="stPageLink"] a:focus-visible {
  outline: 2px solid #4e6be8; outline-offset: 1px;
}
</style>"""


@contextmanager
def told(label: str) -> Iterator[None]:
    """Show an error of one run as one message, so that the rest of the page is still drawn."""
    try:
        yield
    except FsdpProfileError as e:
        st.error(f"Run {code(label)} cannot be shown: {code(str(e))}", icon=":material/error:")


def readable(refs: Sequence[RunRef]) -> list[tuple[RunRef, RunFacts]]:
    """The chosen runs that can be read; a message for each of the others."""
    found = []
    for ref in refs:
        with told(ref.label):
            found.append((ref, data.facts(ref)))
    return found


def figure(drawn: Figure, *, key: str, alt: str) -> None:
    """A plotly figure, as wide as the page, under its legend."""
    entries = legend_html(drawn)
    if entries:
        st.html(entries)
    st.plotly_chart(drawn, key=key, width="stretch", config=_PLOTLY, alt=alt)


def table(rows: Any, *, key: str) -> None:
    """A table that sorts; empty cells say what they are. A long or wide one scrolls inside itself, and says so."""
    first = rows.column_names[0]
    is_short = max([len(first), *map(len, map(str, rows.column(0).to_pylist()))]) <= _PINNED_CHARS
    with scrolled(key):
        st.dataframe(
            rows, key=key, hide_index=True, width="stretch", height=table_height(rows), placeholder="not recorded",
            column_config={first: st.column_config.Column(pinned=is_short)},
        )  # fmt: skip


def show(found: Table, *, key: str, has_note: bool = True) -> None:
    """A table of present/ under no heading of its own, with its note below it."""
    table(arrow_table(found), key=key)
    if found.note and has_note:
        st.caption(prose(found.note))


def scrolled(key: str) -> "st.delta_generator.DeltaGenerator":
    """A container for a table, which tells under it that there are more columns, while there are."""
    return st.container(key=f"table {key}")


def style() -> None:
    """The sign that a table goes on to the right (a screen reader knows it from the table), and where the focus is."""
    st.html(_STYLE)


def table_height(rows: Any) -> Any:
    """As high as its rows, or ten of them."""
    return "content" if rows.num_rows <= _MAX_ROWS else _SCROLLED_PX


def section(title: str, label: str | None = None) -> None:
    """A heading, with the run's name when there are several."""
    st.markdown(f"##### {title}" if label is None else f"##### {title} · {code(label)}")


def nothing_chosen(catalogue: Catalogue) -> None:
    """What to do when there is nothing to show."""
    if catalogue.runs:
        st.info(
            "No run is chosen. Open the sidebar and choose one, or several to compare.",
            icon=":material/arrow_back:",
        )
        return
    st.info(
        "No recorded runs here yet. Record one, then reload this page:\n\n"
        "    fsdp-profile run train.py\n\n"
        "To compare with DDP, record both: `fsdp-profile run --as ddp --as fsdp train.py`. "
        "To look at other runs: `fsdp-profile dashboard PATH`.",
        icon=":material/info:",
    )


def not_recorded(what: str, label: str, why: str) -> None:
    """A measurement that a run does not have, and the reason."""
    st.info(f"{what} of {code(label)}: **not recorded**, {code(why)}", icon=":material/help:")


def onward(chosen: state.Selection, *, on_overview: bool) -> None:
    """The way to the other pages: on a phone the sidebar is folded away."""
    row = st.container(horizontal=True)
    for page in PAGES:
        if page.name != "runs" and not (on_overview and page is PAGES[0]):
            row.page_link(page.script, label=page.title, icon=page.icon, query_params=chosen.query())


def one_run(
    draw: "Callable[[RunRef, RunFacts, st.delta_generator.DeltaGenerator], None]", *, all_ranks: bool = False
) -> None:
    """The controls of a page about one run and one rank, then `draw` with the run and the column left for the step."""
    catalogue = data.catalogue()
    chosen = state.current(catalogue)
    if not chosen.runs:
        nothing_chosen(catalogue)
        return
    columns = st.columns(3 if len(chosen.runs) > 1 else 2)
    if len(chosen.runs) > 1:
        with columns[0]:
            state.pick_units_run(data.sharded_first(chosen.runs))
    chosen = state.current(catalogue)
    ref = chosen.units_run or data.sharded_first(chosen.runs)[0]
    for found, run in readable([ref]):
        with columns[-2]:
            state.pick_rank((r.rank for r in run.ranks), all_ranks=all_ranks)
        with told(found.label):
            draw(found, run, columns[-1])
