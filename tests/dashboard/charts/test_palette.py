import numpy as np
import pytest

from fsdp_dashboard.charts.palette import COLLECTIVE_COLOURS, SPAN_COLOURS
from fsdp_dashboard.views.ranks import grid_chart
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import CollectiveKind, SpanKind


def test_every_category_and_span_has_a_colour_and_a_place():
    assert set(SPAN_COLOURS) == set(SpanKind)
    assert set(COLLECTIVE_COLOURS) == set(CollectiveKind)


def test_a_collective_has_one_colour_everywhere_and_no_two_share_one():
    assert len(set(COLLECTIVE_COLOURS.values())) == len(CollectiveKind)
    assert set(COLLECTIVE_COLOURS.values()) <= {category.colour for category in Category}
    for kind in (SpanKind.ALL_GATHER, SpanKind.REDUCE_SCATTER, SpanKind.ALL_REDUCE):
        assert SPAN_COLOURS[kind] == COLLECTIVE_COLOURS[CollectiveKind(kind.value)]


def linear(colour):
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("colour", [category.colour for category in Category])
def test_every_colour_stands_out_on_white_and_on_a_dark_page(colour):
    luminance = linear(colour) @ [0.2126, 0.7152, 0.0722]
    dark = linear("#0e1117") @ [0.2126, 0.7152, 0.0722]
    assert 1.05 / (luminance + 0.05) > 1.45
    assert (luminance + 0.05) / (dark + 0.05) > 2.0


# How the linear RGB of a colour looks to protanope, deuteranope and tritanope eyes (Machado, Oliveira, Fernandes 2009).
PROTANOPE = [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
]
DEUTERANOPE = [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
]
TRITANOPE = [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.303900],
]
TO_LMS = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
TO_LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


EYES = {"normal": np.eye(3), "protanope": PROTANOPE, "deuteranope": DEUTERANOPE, "tritanope": TRITANOPE}


@pytest.mark.parametrize("eyes", EYES.values(), ids=EYES)
def test_no_two_categories_look_alike(eyes):
    seen = np.clip(np.array([linear(c.colour) for c in Category]) @ np.array(eyes).T, 0, 1)
    lab = np.cbrt(seen @ np.array(TO_LMS).T) @ np.array(TO_LAB).T
    distance = np.sqrt(((lab[:, None] - lab[None]) ** 2).sum(axis=-1))
    assert distance[np.triu_indices(len(lab), 1)].min() > 0.055


@pytest.mark.parametrize("eyes", EYES.values(), ids=EYES)
def test_more_is_lighter_on_the_heat_map_to_every_eye(eyes):
    seen = np.clip(np.array([linear(colour) for _, colour in grid_chart.SCALE]) @ np.array(eyes).T, 0, 1)
    lightness = np.cbrt(seen @ np.array(TO_LMS).T) @ np.array(TO_LAB).T[:, 0]
    assert np.diff(lightness).min() > 0.08
