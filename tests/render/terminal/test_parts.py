from hypothesis import given
from hypothesis import strategies as st
from render.terminal.samples import printed
from rich.cells import cell_len

from fsdp_profile.core.text import plain
from fsdp_profile.render.terminal.parts import Field, Grid, Name, facts, lines, sections, shortened


@given(st.text(), st.integers(1, 40))
def test_a_shortened_name_never_exceeds_its_place(text, cells):
    assert cell_len(shortened(plain(text), cells=cells)) <= cells


@given(st.text(max_size=50))
def test_plain_text_is_one_printable_line(text):
    assert plain(text).isprintable()


def test_a_name_keeps_its_head_and_its_tail():
    assert printed(Name("layers.12.attention.qkv.weight"), width=16) == "layers.1….weight\n"
    assert printed(Name("short"), width=16) == "short\n"


def test_names_that_would_read_the_same_are_cut_elsewhere():
    names = ["gpt-ddp-2ranks", "gpt-fsdp1-2ranks", "gpt-fsdp2-2ranks", "gpt-fsdp2-no-reshard-2ranks"]
    told = [shortened(name, cells=14, among=names) for name in names]
    assert told == ["gpt-ddp-2ranks", "…-fsdp1-2ranks", "…-fsdp2-2ranks", "…eshard-2ranks"]


def grid(*, groups: int) -> Grid:
    fields = [[Field(header=f"group {i}", cells=["1.00 MiB", "22.00 MiB"])] for i in range(groups)]
    return Grid(
        key=[Field(header="unit", cells=[Name("layers.0"), "all"], justify="left")],
        groups=fields,
        num_totals=1,
    )


def test_a_grid_that_fits_is_one_table():
    assert printed(grid(groups=2), width=30).splitlines() == [
        "unit        group 0    group 1",
        "──────────────────────────────",
        "layers.0   1.00 MiB   1.00 MiB",
        "──────────────────────────────",
        "all       22.00 MiB  22.00 MiB",
    ]


def test_a_grid_that_does_not_fit_goes_on_below_under_the_same_keys():
    assert printed(grid(groups=2), width=29).splitlines() == [
        "unit        group 0",
        "───────────────────",
        "layers.0   1.00 MiB",
        "───────────────────",
        "all       22.00 MiB",
        "",
        "unit        group 1",
        "───────────────────",
        "layers.0   1.00 MiB",
        "───────────────────",
        "all       22.00 MiB",
    ]


@given(st.integers(30, 160), st.integers(1, 12), st.text(max_size=60))
def test_no_number_is_cut_and_no_line_is_too_long(width, groups, name):
    fields = [[Field(header="a long header", cells=["1023.99 MiB"])] for _ in range(groups)]
    text = printed(Grid(key=[Field(header="unit", cells=[Name(name)], justify="left")], groups=fields), width=width)
    assert text.count("1023.99 MiB") == groups
    assert all(cell_len(line) <= width for line in text.splitlines())


def test_a_header_breaks_only_where_there_is_no_room():
    fields = Grid(key=[Field(header="time gathered", cells=["1.00 ms"])], groups=[])
    assert printed(fields, width=13).splitlines()[0] == "time gathered"
    assert [line.strip() for line in printed(fields, width=12).splitlines()[:2]] == ["time", "gathered"]


def test_long_facts_and_lines_go_on_indented():
    assert printed(facts([("script", "train.py --steps 4")]), width=18).splitlines() == [
        "script  train.py  ",
        "        --steps 4 ",
    ]
    assert [line.rstrip() for line in printed(lines(["one two"]), width=6).splitlines()] == ["- one", "  two"]


def test_sections_are_an_empty_line_apart_and_absent_ones_leave_none():
    assert printed(sections(["a", None, "b"]), width=10) == "a\n\nb\n"
