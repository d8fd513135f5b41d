"""The pages, one folder each, and their registry: navigation, links and tests derive from it.

A page's folder holds `page.py` (pick, ask, draw; no maths, no paths), `queries.py` (what it asks of a run, cached and
guarded by `data`) and `charts.py` (values to plotly figures). The folder is not called `pages`: Streamlit takes any
`pages` beside the entry script for its older multi-page apps and runs those instead.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One page of the dashboard."""

    name: str
    """Its folder, and its path in the URL."""
    title: str
    """What the navigation and the links between pages call it."""
    icon: str

    @property
    def script(self) -> str:
        """The script that draws it, relative to app.py."""
        return f"views/{self.name}/page.py"

    @property
    def path(self) -> Path:
        """The script that draws it."""
        return Path(__file__).parent / self.name / "page.py"


PAGES: Final = (
    Page(name="overview", title="Overview", icon=":material/stacked_bar_chart:"),
    Page(name="runs", title="Runs", icon=":material/table_rows:"),
    Page(name="compare", title="Compare", icon=":material/compare_arrows:"),
    Page(name="memory", title="Memory", icon=":material/area_chart:"),
    Page(name="source", title="Source", icon=":material/code:"),
    Page(name="units", title="Units", icon=":material/view_timeline:"),
    Page(name="collectives", title="Collectives", icon=":material/swap_horiz:"),
    Page(name="ranks", title="Ranks", icon=":material/grid_view:"),
    Page(name="traces", title="Traces", icon=":material/timeline:"),
    Page(name="share", title="Share", icon=":material/share:"),
    Page(name="whatif", title="What if", icon=":material/tune:"),
)
"""In the order of the navigation; the first is the landing page."""


def page_named(name: str) -> Page:
    """The page of a folder's name."""
    return next(page for page in PAGES if page.name == name)
