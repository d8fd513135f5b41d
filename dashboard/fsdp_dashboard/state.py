"""What is being looked at, and its URL: every choice is a query parameter, so that a link shows the same.

A parameter whose value is the default is not in the URL; one that makes no sense for the runs is dropped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from fsdp_dashboard.data import Catalogue, RunRef

RUN: Final = "run"
RANK: Final = "rank"
STEP: Final = "step"
UNITS_RUN: Final = "units_run"
LINE: Final = "line"
FORMAT: Final = "format"
ALIGN: Final = "align"
MEASURE: Final = "measure"
WORDS: Final = "words"
IS: Final = "is"
TAG: Final = "tag"
SORT: Final = "sort"
UNITS_BY: Final = "units_by"

_OPEN_STEP: Final = "open step"
"""In the session: a step that a figure asks to be shown; a picker's value can only be set before it is drawn."""

WORST_RANK: Final = "highest peak"
PEAK_STEP: Final = "of the peak"
ALL_STEPS: Final = "all"
ALL_RANKS: Final = "all"
MOST_EXPOSED_STEP: Final = "most exposed"
MOST_BYTES_LINE: Final = "most bytes"
BY_TIME: Final = "ms in step"
BY_PHASE: Final = "phase"


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Everything the pages need to know."""

    runs: tuple[RunRef, ...] = ()
    rank: int | None = None
    """None: of each run the rank with the highest peak."""
    all_ranks: bool = False
    step: int | None = None
    """None: of each run the step of the peak; of collectives the one with most exposed time."""
    all_steps: bool = False
    units_run: RunRef | None = None
    """The run of the pages that show one (source, units, collectives, traces); None: the first one."""
    line: str | None = None
    """A source line as the picker calls it; None: the one with most bytes."""
    by_phase: bool = False
    """Steps of two runs are laid over each other phase by phase, not ms by ms."""

    def query(self) -> dict[str, list[str]]:
        """The query parameters of a link to this selection."""
        step = ALL_STEPS if self.all_steps else self.step
        rank = ALL_RANKS if self.all_ranks else self.rank
        chosen = {RANK: rank, STEP: step, UNITS_RUN: self.units_run and self.units_run.label, LINE: self.line}
        chosen[ALIGN] = BY_PHASE if self.by_phase else None
        found = {key: [str(value)] for key, value in chosen.items() if value is not None}
        return {RUN: [ref.label for ref in self.runs], **found}


def pick_runs(catalogue: Catalogue) -> None:
    """The run picker."""
    st.multiselect(
        "Runs",
        list(catalogue.runs),
        default=list(catalogue.default),
        key=RUN,
        bind="query-params",
        placeholder="Choose runs",
        help="One run: where its memory went. Several: what sharding changed, on one scale.",
    )


def choose_runs(labels: Sequence[str]) -> None:
    """Make these the runs that every page shows; for the callback of a button."""
    st.session_state[RUN] = list(labels)


def unknown_runs(catalogue: Catalogue) -> list[str]:
    """Runs that the URL names and that are not there; ask before the picker is drawn."""
    return [label for label in st.query_params.get_all(RUN) if label and label not in catalogue.runs]


def pick_rank(ranks: Iterable[int], *, all_ranks: bool = False) -> None:
    """The rank picker; by default each run shows the rank with its highest peak."""
    options = [WORST_RANK, *([ALL_RANKS] if all_ranks else []), *map(str, sorted(set(ranks)))]
    st.selectbox("Rank", options, key=RANK, bind="query-params")


def pick_step(steps: Iterable[int], *, all_steps: bool = True) -> None:
    """The step picker; by default each run shows the step of its peak."""
    numbers = [str(step) for step in sorted(set(steps))]
    options = [PEAK_STEP, *([ALL_STEPS] if all_steps else []), *numbers]
    if st.session_state.get(_OPEN_STEP) in options:
        st.session_state[STEP] = st.session_state.pop(_OPEN_STEP)
    st.selectbox("Step", options, key=STEP, bind="query-params")


def pick_exposed_step(steps: Iterable[int]) -> None:
    """The step picker of collectives; by default the step with most exposed time."""
    numbers = [str(step) for step in sorted(set(steps))]
    st.selectbox("Step", [MOST_EXPOSED_STEP, *numbers], key=STEP, bind="query-params")


def pick_units_run(refs: Sequence[RunRef]) -> None:
    """Which of several runs a page shows that has room for one."""
    st.selectbox("Run", [ref.label for ref in refs], key=UNITS_RUN, bind="query-params")


def pick_line(names: Iterable[str]) -> None:
    """The picker of source lines; by default the line with most bytes."""
    st.selectbox("Line", [MOST_BYTES_LINE, *names], key=LINE, bind="query-params")


def pick_format(formats: Mapping[str, str]) -> str:
    """The picker of a file's format: ending -> what it is; the ending chosen."""
    found = st.selectbox("File", list(formats), key=FORMAT, bind="query-params", format_func=lambda e: formats[e])
    return str(found)


def pick_alignment() -> None:
    """How the steps of two runs are laid over each other."""
    st.selectbox("Align by", [BY_TIME, BY_PHASE], key=ALIGN, bind="query-params")


def open_step(step: int) -> None:
    """Show another step, as if it had been picked; ends this run of the page."""
    st.session_state[_OPEN_STEP] = str(step)
    st.rerun()


def pick_measure(measures: Iterable[str]) -> str:
    """Which number of each rank the heat map shows."""
    return str(st.selectbox("Of each rank", list(map(str, measures)), key=MEASURE, bind="query-params"))


def pick_words() -> str:
    """Words that the runs of the table must hold."""
    return str(st.text_input("Filter", key=WORDS, bind="query-params", placeholder="name, model, device, tag ..."))


def pick_strategies(strategies: Sequence[str]) -> list[str]:
    """Strategies of the runs in the table; none chosen: all."""
    return list(st.multiselect("Strategy", strategies, key=IS, bind="query-params", placeholder="all"))


def pick_tags(tags: Sequence[str]) -> list[str]:
    """Tags that the runs of the table must have."""
    return list(st.multiselect("Tags", tags, key=TAG, bind="query-params", placeholder="any"))


def pick_sort(orders: Sequence[str]) -> str:
    """The order of a table."""
    return str(st.selectbox("Sort by", orders, key=SORT, bind="query-params"))


def pick_units_order(orders: Iterable[str]) -> str:
    """The order of the units in their table."""
    return str(st.selectbox("Sort by", list(orders), key=UNITS_BY, bind="query-params"))


def current(catalogue: Catalogue) -> Selection:
    """The selection as the widgets drawn so far say."""
    # A link that is followed inside the app keeps the runs that are chosen and adds its own: each counts once.
    chosen = dict.fromkeys(st.session_state.get(RUN) or [])
    rank, step = st.session_state.get(RANK), st.session_state.get(STEP)
    line = st.session_state.get(LINE)
    return Selection(
        runs=tuple(catalogue.runs[label] for label in chosen if label in catalogue.runs),
        rank=_number(rank),
        all_ranks=rank == ALL_RANKS,
        step=_number(step),
        all_steps=step == ALL_STEPS,
        units_run=catalogue.runs.get(st.session_state.get(UNITS_RUN) or ""),
        line=None if line == MOST_BYTES_LINE else line,
        by_phase=st.session_state.get(ALIGN) == BY_PHASE,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
