"""Source: which lines of the script's own code hold the bytes at the peak, and the code around one of them."""

import streamlit as st

from fsdp_dashboard import data, state, text, widgets
from fsdp_dashboard.data import RunFacts, RunRef
from fsdp_dashboard.values import markdown
from fsdp_dashboard.views.source import queries, source_file
from fsdp_dashboard.views.source.charts import MAX_LINES, source_figure
from fsdp_dashboard.views.source.queries import SourceLines
from fsdp_dashboard.views.source.source_file import NotShown
from fsdp_profile.present.call_sites import line_name, lines_table, lines_verdict

COMMAND = "fsdp-profile run --stacks train.py"
CHANGED = "The file was changed after the run was recorded: its lines may have moved."


def page() -> None:
    """One run, one rank, one step."""
    st.subheader("Source lines at the peak")
    widgets.one_run(source)


def source(ref: RunRef, run: RunFacts, step_column: "st.delta_generator.DeltaGenerator") -> None:
    """The lines of one run."""
    rank = data.rank_shown(run, state.current(data.catalogue()).rank)
    with step_column:
        state.pick_step(data.recorded_steps(ref, rank=rank), all_steps=False)
    peak = data.peak(ref, rank=rank, step=state.current(data.catalogue()).step)
    found = queries.source_lines(ref, peak=peak)
    if found is None:
        widgets.not_recorded("Source lines", ref.label, queries.why_no_lines(run))
        st.code(COMMAND, language=None)
        return
    st.markdown(markdown(lines_verdict(found.lines, peak)))
    if not found.lines:
        return
    if len(found.lines) > MAX_LINES:
        st.caption(f"The first {MAX_LINES} of {len(found.lines):,} lines are drawn; the table has all.")
    drawn = source_figure(found.lines, peak_bytes=peak.allocated_bytes)
    widgets.figure(drawn, key="source", alt="Bytes at the peak by source line and category")
    around(ref, run, found)
    widgets.section("All lines")
    widgets.show(lines_table(found.lines, peak_bytes=peak.allocated_bytes), key="lines")


def around(ref: RunRef, run: RunFacts, lines: SourceLines) -> None:
    """The code around the chosen line, where it is on this machine."""
    state.pick_line(lines.by_name)
    line = lines.called(state.current(data.catalogue()).line)
    widgets.section("The code", line_name(line))
    found = queries.source_file(ref, line.file)
    if isinstance(found, NotShown):
        st.info(f"{text.code(line.file)}: {found.why}", icon=":material/help:")
        return
    shown = source_file.excerpt(found, line, lines.lines)
    if shown is None or queries.has_changed(run, found):
        st.warning(CHANGED, icon=":material/edit:")
    if shown is not None:
        st.code(shown, language="python")
    st.caption(f"{text.code(text.path_word(found.path))} as it is now; sizes are what each line holds at the peak.")


if __name__ == "__main__":
    page()
