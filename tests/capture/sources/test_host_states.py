"""States on the host, counted where models and optimizers hold them."""

import torch
from torch import nn

from fsdp_profile.capture.sources.cpu import module_calls
from fsdp_profile.capture.sources.host_states import host_states
from fsdp_profile.capture.user_code import UserCode

WEIGHT = 64 * 64 * 4


def test_parameters_gradients_and_states_are_counted_once_each() -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
    model[1].weight = model[0].weight  # tied
    model.append(nn.Linear(8, 8, device="meta"))  # elsewhere
    optimizer = torch.optim.AdamW([model[0].weight])
    model[0](torch.ones(1, 64)).sum().backward()
    optimizer.step()
    found = host_states([model], [optimizer])
    assert list(zip(found["category"], found["is_pinned"], found["size_bytes"], strict=True)) == [
        ("GRAD", False, WEIGHT),
        ("OPTIMIZER_STATE", False, 2 * WEIGHT),  # not the step counters, which are on the host anyway
        ("PARAM", False, WEIGHT),
    ]
    assert len(set(found["t_ns"])) == 1


def test_fsdp1_keeps_its_offloaded_gradients_in_the_flat_parameter() -> None:
    model = nn.Module()
    flat = nn.Parameter(torch.zeros(10))
    flat._cpu_grad = torch.zeros(10)  # type: ignore[attr-defined]
    model._handle = type("Handle", (), {"flat_param": flat})()  # type: ignore[assignment]
    found = host_states([model], [])
    assert list(zip(found["category"], found["size_bytes"], strict=True)) == [
        ("GRAD", 40),
        ("PARAM", 40),
    ]


def test_nothing_on_the_host_is_no_row() -> None:
    assert host_states([nn.Linear(2, 2, device="meta")], [])["category"] == []


def test_the_calls_of_known_modules_are_in_the_event_tree() -> None:
    """What a CUDA trace with stacks gives the ledger; CPU activity alone has the same Python calls."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    own = UserCode()
    own.add_modules(model)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profiler:
        model(torch.ones(1, 4))
        nn.Linear(4, 4)(torch.ones(1, 4))  # not of the model
    calls = module_calls(profiler.profiler.kineto_results.experimental_event_tree(), own)
    spans = {
        path: (start, end) for path, start, end in zip(calls["path"], calls["start_ns"], calls["end_ns"], strict=True)
    }
    assert sorted(calls["path"]) == ["(root)", "0", "1"]
    assert spans["(root)"][0] <= spans["0"][0] < spans["0"][1] <= spans["1"][0] < spans["1"][1] <= spans["(root)"][1]
