"""Entry of the dashboard: `fsdp-profile dashboard` runs this file with streamlit."""

import streamlit as st

from fsdp_dashboard import data, state, widgets
from fsdp_dashboard.text import code
from fsdp_dashboard.views import PAGES

# Without one of our own, streamlit fetches the page's icon from a server of fonts as favicon.
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" '
    'fill="#4e6be8"/><path d="M3 13V9h3V5h3v3h4v5z" fill="#fff"/></svg>'
)


def main() -> None:
    """Draw the sidebar, then the page."""
    st.set_page_config(page_title="fsdp-profile", page_icon=ICON, layout="wide", initial_sidebar_state="auto")
    pages = [
        st.Page(page.path, title=page.title, icon=page.icon, url_path=page.name, default=page is PAGES[0])
        for page in PAGES
    ]
    page = st.navigation(pages)
    catalogue = data.look_again()
    unknown = state.unknown_runs(catalogue)
    with st.sidebar:
        state.pick_runs(catalogue)
        for problem in catalogue.problems:
            st.warning(code(problem))
    widgets.style()
    for label in unknown:
        st.warning(f"The link names a run that is not here: {code(label)}. Choose another in the sidebar.")
    page.run()


if __name__ == "__main__":
    main()
