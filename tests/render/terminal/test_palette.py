import pytest
from rich.style import Style

from fsdp_profile.core.schema import CATEGORIES
from fsdp_profile.render.terminal.palette import COLOURS, MARKS, STACK_ORDER, paint


def test_every_category_has_a_colour_and_a_letter_of_its_own():
    assert set(COLOURS) == set(MARKS) == set(STACK_ORDER) == set(CATEGORIES)
    assert len(set(COLOURS.values())) == len(set(MARKS.values())) == len(STACK_ORDER) == len(CATEGORIES)
    assert all(len(mark) == 1 and mark.isascii() for mark in MARKS.values())


def test_the_terminal_has_the_dashboards_colours_and_order():
    charts = pytest.importorskip("fsdp_dashboard.charts.palette")
    assert COLOURS is charts.COLOURS
    assert STACK_ORDER is charts.STACK_ORDER


def test_the_letter_can_be_read_on_its_colour():
    for category in CATEGORIES:
        style = Style.parse(paint(category))
        ink, ground = (_luminance(c.get_truecolor()) for c in (style.color, style.bgcolor))
        assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) >= 3, category


def _luminance(colour) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
