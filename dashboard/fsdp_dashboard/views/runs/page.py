"""Runs: every run that was found, filtered and sorted; what is chosen here is what the other pages show."""

import hashlib
from collections.abc import Sequence
from typing import Any

import streamlit as st

from fsdp_dashboard import data, state, text, widgets
from fsdp_dashboard.data import RunRef
from fsdp_dashboard.views.runs import queries, tables
from fsdp_dashboard.views.runs import text as words
from fsdp_dashboard.views.runs.queries import ListedRun

READ_ALL = "read all runs"


def page() -> None:
    """The table, the way from its rows to the other pages, and the tags of its rows."""
    st.subheader("Runs")
    catalogue = data.catalogue()
    if not catalogue.runs:
        widgets.nothing_chosen(catalogue)
        return
    with st.spinner("Reading the runs"):
        budget_s = float("inf") if st.session_state.get(READ_ALL) else queries.BUDGET_S
        runs = queries.listed(catalogue, budget_s=budget_s)
    shown = filtered(runs)
    st.caption(words.how_many(len(shown), len(runs)))
    if not shown:
        st.info(words.NONE_FITS, icon=":material/filter_alt_off:")
        return
    now = state.current(catalogue)
    chosen = chosen_rows(shown, [ref.label for ref in now.runs])
    unread = [run for run in runs if not run.row.is_read and not run.row.problem]
    if unread:
        st.button(words.read_rest(len(unread)), key="read_all", on_click=_read_all)
    st.caption(words.BASELINE)
    for run in shown:
        if run.row.problem:
            st.warning(text.code(f"{run.ref.label}: {run.row.problem}"), icon=":material/error:")
    onward(chosen, now)
    tagging(chosen or list(now.runs))


def filtered(runs: Sequence[ListedRun]) -> list[ListedRun]:
    """What the filters leave, in the chosen order."""
    one, two, three, four = st.columns([2, 1, 1, 1])
    with one:
        words = state.pick_words()
    with two:
        strategies = state.pick_strategies(sorted({run.strategy for run in runs} - {""}))
    with three:
        tags = state.pick_tags(sorted({tag for run in runs for tag in run.tags}))
    with four:
        sort = state.pick_sort([queries.NEWEST, *queries.SORTS])
    return queries.chosen_of(runs, words=words, strategies=strategies, tags=tags, sort=sort)


def chosen_rows(runs: Sequence[ListedRun], now: Sequence[str]) -> list[RunRef]:
    """The table; the runs whose rows are ticked."""
    rows = tables.runs_table(runs, now)
    told = hashlib.sha256("\n".join(run.ref.label for run in runs).encode(errors="replace")).hexdigest()[:12]
    columns = {
        tables.SAVED: st.column_config.NumberColumn(format="%.1f %%"),
        tables.UNKNOWN: st.column_config.NumberColumn(format="%.2f %%"),
        "run": st.column_config.TextColumn(width="medium"),
        "tags": st.column_config.ListColumn(),
    }
    # Ticks are kept by place: other rows are another table.
    with widgets.scrolled("runs"):
        picked: Any = st.dataframe(
            rows, key=f"runs {told}", hide_index=True, width="stretch", height=widgets.table_height(rows),
            placeholder="not known", column_config=columns, on_select="rerun", selection_mode="multi-row",
        )  # fmt: skip
    return [runs[row].ref for row in picked.selection.rows if row < len(runs)]


def onward(chosen: Sequence[RunRef], now: state.Selection) -> None:
    """The button that makes the ticked runs the ones that every page shows, and the way to the pages."""
    if chosen:
        labels = [ref.label for ref in chosen]
        st.button(
            words.show(labels), key="show", type="primary", icon=":material/visibility:",
            on_click=state.choose_runs, args=(labels,),
        )  # fmt: skip
    else:
        st.caption(words.HOW_TO_CHOOSE)
    if now.runs:
        st.markdown(words.shown([ref.label for ref in now.runs]))
        widgets.onward(now, on_overview=False)


def tagging(refs: Sequence[RunRef]) -> None:
    """The tags of the ticked runs, or of those that are shown."""
    if not refs:
        return
    widgets.section("Tags", refs[0].label if len(refs) == 1 else None)
    have = [queries.tags_of(ref) for ref in refs]
    for ref in refs:
        problem = queries.tag_problem(ref)
        if problem is not None:
            st.warning(text.code(problem), icon=":material/error:")
    of = hashlib.sha256("\n".join(ref.label for ref in refs).encode(errors="replace")).hexdigest()[:12]
    with st.form(f"tags {of}", border=False):
        told = st.text_input(
            words.tags_of(len(refs)), ", ".join(have[0]) if len(set(have)) == 1 else "", key=f"tags_of {of}",
            help=words.TAGS,
        )  # fmt: skip
        if st.form_submit_button("Save tags", icon=":material/sell:"):
            problems = queries.set_tags(refs, told)
            for problem in problems:
                st.error(text.code(problem), icon=":material/error:")
            if not problems:
                st.rerun()  # the filter and the table are drawn above


def _read_all() -> None:
    st.session_state[READ_ALL] = True


if __name__ == "__main__":
    page()
