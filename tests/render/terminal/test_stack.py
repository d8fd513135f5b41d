from hypothesis import given
from hypothesis import strategies as st
from render.terminal.samples import printed

from fsdp_profile.core.categories import Category
from fsdp_profile.render.terminal.stack import StackedBar, split_cells


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=14), st.integers(1, 200))
def test_the_parts_of_a_full_bar_fill_it(sizes, cells):
    total = sum(sizes)
    found = split_cells([size / total for size in sizes], cells=cells)
    assert sum(found) == cells
    assert all(abs(part - size / total * cells) < 1 for part, size in zip(found, sizes, strict=True))


def test_bars_on_one_scale_are_as_long_as_their_bytes():
    sizes = {Category.ACTIVATION: 30, Category.PARAM: 20}
    assert printed(StackedBar(by_category=sizes, scale_bytes=100), width=20) == "PPPPAAAAAA\n"


def test_with_colour_each_part_begins_with_its_letter():
    sizes = {Category.ACTIVATION: 1, Category.PARAM: 1}
    assert printed(StackedBar(by_category=sizes, scale_bytes=2), width=8, colour=True) == (
        "\x1b[38;2;255;255;255;48;2;78;107;232mP   \x1b[0m\x1b[38;2;0;0;0;48;2;230;145;38mA   \x1b[0m\n"
    )
