"""Our own drawing of a ledger in the browser: the scripts of web/ as one component of Streamlit.

They go inline: Streamlit finds a folder of scripts only in an installed package of the distribution's own name, and
this one is also run from a checkout. Inline scripts cannot import each other, so they are joined. The browser has them
once; a page's message then holds only their hash.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

import streamlit as st

_WEB: Final = Path(__file__).with_name("web")
_SCRIPTS: Final = ("common.js", "rows.js", "paint.js", "panel.js", "ledger.js")
"""In an order in which each knows what it needs."""
_HTML: Final = '<div class="ledger"></div>'


def draw(data: dict[str, Any], *, key: str) -> Any:
    """Mount it; the result has `view` (windows, wants, has) and for one run `step`, the step that was clicked."""
    component = st.components.v2.component("fsdp_profile_ledger", html=_HTML, css=_text("ledger.css"), js=script())
    return component(key=key, data=data, on_view_change=_nothing, on_step_change=_nothing)


@cache
def script() -> str:
    """What the browser runs."""
    return "\n".join(_text(name) for name in _SCRIPTS)


@cache
def _text(name: str) -> str:
    return (_WEB / name).read_text(encoding="utf-8")


def _nothing() -> None:
    """A state is kept only where something is called when it changes."""
