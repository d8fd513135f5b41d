"""The conversation with web/ledger.js: rows are sent once, a zoom is answered only where the browser has too few.

What is in view is in the URL (`window`), in ns since each panel's start, so that a link shows the same.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import streamlit as st

from fsdp_dashboard import state, widgets
from fsdp_dashboard.data import RunRef
from fsdp_dashboard.ledger_canvas import component, queries
from fsdp_dashboard.ledger_canvas.panels import LedgerPanel, Window, detail_data, ledger_data

WINDOW: Final = "window"
"""Query parameter: from:to of each panel, joined by commas; empty where nothing is zoomed."""
_KEY: Final = "ledger"
_DRAWN: Final = "ledger drawn"
_MAX_PANELS: Final = 16
_AROUND: Final = 0.5
"""Widths of the window that are read on either side of it: a small move needs no second answer."""


@st.fragment
def drawn(refs: Sequence[RunRef], panels: Sequence[LedgerPanel]) -> None:
    """Mount the drawing; a fragment, so that a zoom does not run the page."""
    number = _id(refs, panels)
    told = (st.session_state.get(_KEY) or {}).get("view") or {}
    if told.get("has") == number:
        windows = [_window(text) for text in told.get("windows", [])[: len(panels)]]
        _to_url(windows)
        data: dict[str, Any] = {"id": number, "detail": _detail(refs, panels, told.get("wants", -1), windows)}
    else:
        is_another = st.session_state.get(_DRAWN, number) != number
        windows = [] if is_another else [_window(text) for text in st.query_params.get(WINDOW, "").split(",")]
        _to_url(windows)
        data = {"id": number, **ledger_data(panels, windows=windows[: len(panels)])}
    st.session_state[_DRAWN] = number
    found = component.draw(data, key=_KEY)
    if found.step is not None:
        state.open_step(int(found.step))


def _id(refs: Sequence[RunRef], panels: Sequence[LedgerPanel]) -> str:
    """Of what is drawn: the same for the same rows."""
    parts_of = [
        (str(ref.path), ref.stamp, p.title, p.time_window.rank, p.time_window.step)
        for ref, p in zip(refs, panels, strict=True)
    ]
    return hashlib.sha256(repr(parts_of).encode()).hexdigest()[:16]


def _detail(
    refs: Sequence[RunRef], panels: Sequence[LedgerPanel], number: int, windows: Sequence[Window | None]
) -> dict[str, Any] | None:
    """Finer rows around the window of a panel that asks for them."""
    window = windows[number] if 0 <= number < len(windows) else None
    if window is None:
        return None
    panel = panels[number]
    more = round((window[1] - window[0]) * _AROUND)
    wide = (max(window[0] - more, 0), min(window[1] + more, panel.time_window.end_ns - panel.time_window.start_ns))
    start = panel.time_window.start_ns
    with widgets.told(panel.title):
        found = queries.detail(
            refs[number], rank=panel.time_window.rank, start_ns=start + wide[0], end_ns=start + wide[1]
        )
        return detail_data(panel, found, number=number, window=wide)
    return None


def _window(text: str) -> Window | None:
    """What the browser or a link says is in view; None for what makes no sense."""
    begin, _, end = str(text).partition(":")
    if not (begin.isdecimal() and end.isdecimal()) or len(text) > 40 or int(begin) >= int(end):
        return None
    return int(begin), int(end)


def _to_url(windows: Sequence[Window | None]) -> None:
    if any(windows):
        st.query_params[WINDOW] = ",".join("" if w is None else f"{w[0]}:{w[1]}" for w in windows[:_MAX_PANELS])
    elif WINDOW in st.query_params:
        del st.query_params[WINDOW]
