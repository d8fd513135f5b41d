"""Share: a run as one file, and what to take out of it first."""

from collections.abc import Sequence

import streamlit as st

from fsdp_dashboard import data, state, text, widgets
from fsdp_dashboard.data import RunRef
from fsdp_dashboard.views.share import queries
from fsdp_dashboard.views.share.queries import Redaction
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.present.redaction import KEPT, NOTHING, removals_table

LONG_BYTES = 64 << 20  # of about three million events; a file of fewer is made within seconds
REMOVED = "Removed: hosts, paths, arguments, environment, source lines, free text."
KEY_HELP = (
    "The same key gives the same pseudonyms in another export. Without a key, anyone can check whether a guessed name "
    "is in the run."
)


def page() -> None:
    """Which file, what to take out, and the file itself."""
    st.subheader("Share a run")
    catalogue = data.catalogue()
    chosen = state.current(catalogue)
    if not chosen.runs:
        widgets.nothing_chosen(catalogue)
        return
    columns = st.columns(2)
    with columns[0]:
        ending = state.pick_format(queries.FORMATS)
    if len(chosen.runs) > 1 and ending != ".html":
        with columns[1]:
            state.pick_units_run(data.sharded_first(chosen.runs))
    refs = _shown(state.current(catalogue), ending)
    how = redaction()
    with widgets.told(", ".join(ref.label for ref in refs)):
        if is_wanted(refs):
            if how is not None:
                for ref in refs:
                    preview(ref, how, is_alone=len(refs) == 1)
            download(refs, ending, how)
    st.caption("On the command line:")
    st.code(command(refs, ending, how), language="bash", wrap_lines=True)


def _shown(chosen: state.Selection, ending: str) -> list[RunRef]:
    """A page compares two runs, every other file is of one."""
    if ending == ".html":
        return list(chosen.runs[:2])
    return [chosen.units_run or data.sharded_first(chosen.runs)[0]]


def redaction() -> Redaction | None:
    """The choices; None: as it is."""
    if not st.toggle("Redact", value=True, key="redact", bind="query-params", help=f"{KEPT} {REMOVED}"):
        st.warning(
            "The file will hold host names, paths, the command line and whatever the script named.",
            icon=":material/visibility:",
        )
        return None
    hide = st.toggle("Hide the names of modules too", key="hide_modules", bind="query-params")
    key = st.text_input("Key of the pseudonyms", key="pseudonym_key", help=KEY_HELP) if hide else ""
    return Redaction(hide_modules=hide, key=key)


def is_wanted(refs: Sequence[RunRef]) -> bool:
    """Whether to make the file now: of a long run only when somebody asks for it."""
    size_bytes = queries.tables_bytes(refs)
    if size_bytes < LONG_BYTES:
        return True
    st.info(
        f"The tables take {bytes_text(size_bytes)}: making the file takes a while.", icon=":material/hourglass_empty:"
    )
    return st.toggle("Make it now", key="make", bind="query-params")


def preview(ref: RunRef, how: Redaction, *, is_alone: bool) -> None:
    """What goes, before it goes."""
    found = queries.removals(ref, how)
    widgets.section("What is removed", None if is_alone else ref.label)
    if found:
        widgets.show(removals_table(found), key=f"removals {ref.label}", has_note=False)
    else:
        st.markdown(NOTHING)
    st.caption(f"{KEPT} {REMOVED}")


def download(refs: Sequence[RunRef], ending: str, how: Redaction | None) -> None:
    """The button; the file is made when the page is drawn, and kept."""
    content = queries.file_of(refs, ending, how)
    name = "run" if how is not None or len(refs) > 1 else text.file_name(refs[0].label)
    st.download_button(
        f"Download {name}{ending}", content, file_name=f"{name}{ending}", mime="application/octet-stream",
        icon=":material/download:", type="primary",
    )  # fmt: skip


def command(refs: Sequence[RunRef], ending: str, how: Redaction | None) -> str:
    """The same by `fsdp-profile export`."""
    words = ["fsdp-profile export", *(text.path_word(ref.path.absolute()) for ref in refs), f"-o run{ending}"]
    if how is not None:
        words.append("--redact")
        words += ["--hide-modules" + (" KEY" if how.key else "")] if how.hide_modules else []
    return " ".join(words)


if __name__ == "__main__":
    page()
