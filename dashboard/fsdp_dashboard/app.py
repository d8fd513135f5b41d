"""Entry of the dashboard: `fsdp-profile dashboard` runs this file with streamlit."""

from pathlib import Path

import streamlit as st

from fsdp_dashboard import data, parts, state
from fsdp_dashboard.text import code

# Without one of our own, streamlit fetches the page's icon from a server of fonts as favicon.
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" '
    'fill="#4e6be8"/><path d="M3 13V9h3V5h3v3h4v5z" fill="#fff"/></svg>'
)
VIEWS = Path(__file__).parent / "views"


def main() -> None:
    """Draw the sidebar, then the page."""
    st.set_page_config(page_title="fsdp-profile", page_icon=ICON, layout="wide", initial_sidebar_state="auto")
    pages = [
        st.Page(VIEWS / "overview.py", title="Overview", icon=":material/stacked_bar_chart:", default=True),
        st.Page(VIEWS / "runs.py", title="Runs", icon=":material/table_rows:"),
        st.Page(VIEWS / "compare.py", title="Compare", icon=":material/compare_arrows:"),
        st.Page(VIEWS / "memory.py", title="Memory", icon=":material/area_chart:"),
        st.Page(VIEWS / "source.py", title="Source", icon=":material/code:"),
        st.Page(VIEWS / "units.py", title="Units", icon=":material/view_timeline:"),
        st.Page(VIEWS / "collectives.py", title="Collectives", icon=":material/swap_horiz:"),
        st.Page(VIEWS / "ranks.py", title="Ranks", icon=":material/grid_view:"),
        st.Page(VIEWS / "traces.py", title="Traces", icon=":material/timeline:"),
        st.Page(VIEWS / "share.py", title="Share", icon=":material/share:"),
        st.Page(VIEWS / "whatif.py", title="What if", icon=":material/tune:"),
    ]
    page = st.navigation(pages)
    catalogue = data.look_again()
    unknown = state.unknown_runs(catalogue)
    with st.sidebar:
        state.pick_runs(catalogue)
        for problem in catalogue.problems:
            st.warning(code(problem))
    parts.style()
    for label in unknown:
        st.warning(f"The link names a run that is not here: {code(label)}. Choose another in the sidebar.")
    page.run()


if __name__ == "__main__":
    main()
