"""One row for each category."""

import msgspec
import pytest

from fsdp_profile.core.categories import CATEGORIES, FORMER_CODES, STACK_ORDER, Category, Group


def test_the_rows_are_the_categories_of_schema_2():
    assert [(str(c), c.label, c.letter, c.group.label) for c in CATEGORIES] == [
        ("PARAM", "parameters", "P", "parameters"),
        ("UNSHARDED_PARAM", "gathered parameters", "U", "parameters"),
        ("GRAD", "gradients", "G", "gradients"),
        ("UNSHARDED_GRAD", "unreduced gradients", "g", "gradients"),
        ("OPTIMIZER_STATE", "optimizer state", "O", "optimizer"),
        ("ACTIVATION", "activations", "A", "activations"),
        ("ALL_GATHER", "all-gather buffers", "L", "communication"),
        ("REDUCE_SCATTER", "reduce-scatter buffers", "R", "communication"),
        ("BUCKET", "DDP buckets", "B", "communication"),
        ("WORKSPACE", "workspaces", "W", "other"),
        ("BUFFER", "module buffers", "F", "parameters"),
        ("INPUT", "inputs", "I", "activations"),
        ("OPTIMIZER_TEMPORARY", "optimizer temporaries", "o", "optimizer"),
        ("TEMPORARY", "temporaries", "t", "other"),
        ("UNKNOWN", "unknown", "?", "other"),
    ]


@pytest.mark.parametrize("name", ["label", "letter", "colour", "order"])
def test_no_two_categories_share_it(name):
    assert len({getattr(category, name) for category in CATEGORIES}) == len(CATEGORIES)


def test_the_stack_has_each_category_once_and_ends_with_unknown():
    assert sorted(STACK_ORDER) == sorted(CATEGORIES)
    assert (STACK_ORDER[0], STACK_ORDER[-1]) == (Category.PARAM, Category.UNKNOWN)


def test_a_category_is_its_code_in_json_and_back():
    sizes = {Category.PARAM: 4, Category.WORKSPACE: 8}
    encoded = msgspec.json.encode(sizes)
    assert encoded == b'{"PARAM":4,"WORKSPACE":8}'
    assert msgspec.json.decode(encoded, type=dict[Category, int]) == sizes


def test_former_codes_are_no_codes_any_more():
    assert FORMER_CODES == {"SHARDED_PARAM": Category.PARAM, "SHARDED_GRAD": Category.GRAD}
    assert not set(FORMER_CODES) & set(map(str, Category))
    assert Group("OTHER") is Group.OTHER
