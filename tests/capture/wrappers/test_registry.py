"""Every wrapper follows the protocol."""

import pytest

from fsdp_profile.capture.patching import Patcher
from fsdp_profile.capture.recorder import Recorder
from fsdp_profile.capture.units import UnitRegistry
from fsdp_profile.capture.wrappers import WRAPPERS
from fsdp_profile.capture.wrappers.base import Wrapper

torch = pytest.importorskip("torch")


class _Handle:
    flat_param = None


class _Group:
    fsdp_params = ()


def made(wrapper: type[Wrapper]) -> Wrapper:
    return wrapper(Patcher(), Recorder(), UnitRegistry(), on_root=lambda _: None, on_forward=lambda *_: None)


def test_no_two_wrappers_patch_the_same_module() -> None:
    modules = [name for wrapper in WRAPPERS for name in wrapper.modules]
    assert len(modules) == len(set(modules))
    assert all(name.startswith("torch.") for name in modules)


@pytest.mark.parametrize("unit", [_Handle(), _Group()])
def test_a_unit_belongs_to_one_wrapper(unit: object) -> None:
    assert sum(made(wrapper).owns(unit) for wrapper in WRAPPERS) == 1


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_without_units_describes_none(wrapper: type[Wrapper]) -> None:
    found = made(wrapper)
    assert (found.describe(), found.flat_parameters(torch.nn.Linear(1, 1))) == ({}, [])
