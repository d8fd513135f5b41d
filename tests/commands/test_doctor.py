"""What can be recorded on a machine: the facts, the verdict, and a trial that is read as any run."""

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import types
from importlib import metadata
from pathlib import Path

import pytest
from recording import ROOT, fsdp_profile
from rich.console import Console

from fsdp_profile.capture import machine
from fsdp_profile.commands import _trial, main
from fsdp_profile.core.machine import Fact, State
from fsdp_profile.present.doctor import verdict
from fsdp_profile.render.terminal.doctor import doctor_report

FSDP2 = ROOT / "sample_runs" / "gpt-fsdp2-2ranks"
DDP = ROOT / "sample_runs" / "gpt-ddp-2ranks"


@pytest.mark.parametrize(
    ("version", "state", "found"),
    [
        ("2.13.0+cpu", "ok", "2.13.0+cpu"),
        ("2.4.1", "ok", "2.4.1"),
        ("2.3.1", "missing", "2.3.1"),
        ("2.16.0.dev20270101", "limited", "2.16.0.dev20270101: newer than the last one checked, 2.15"),
    ],
)
def test_torch_by_its_version(monkeypatch, version, state, found):
    monkeypatch.setattr(metadata, "version", lambda _: version)
    fact = machine.torch_fact()
    assert (str(fact.state), fact.found) == (state, found)


def test_without_torch_the_way_to_get_it_is_said(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert machine.torch_fact() == Fact(
        name="torch",
        state=State.MISSING,
        found="not installed: show, compare, check, plan --params work",
        action="pip install 'fsdp-profile[capture]'",
    )
    assert machine.torch_build_fact(machine.host_fact()).found == "not installed"


def nvml(*, fails: str):
    """The bindings, of two devices of one kind; with `fails` they say so at the start."""

    def start():
        if fails:
            raise OSError(fails)

    return types.SimpleNamespace(
        __spec__=types.SimpleNamespace(),
        NVMLError=OSError,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda _: b"NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda _: types.SimpleNamespace(total=141 << 30),
        nvmlSystemGetDriverVersion=lambda: "570.10",
    )


@pytest.mark.parametrize(
    ("fails", "state", "found"),
    [
        ("", "ok", "2 x NVIDIA H200 of 141.00 GiB; driver 570.10"),
        ("no library", "limited", "none (no library): ranks run on the CPU, with gloo"),
    ],
)
def test_devices_as_nvml_sees_them(monkeypatch, fails, state, found):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(fails=fails))
    fact = machine.device_fact()
    assert (str(fact.state), fact.found) == (state, found)
    monkeypatch.setattr(metadata, "version", lambda _: "2.13.0+cpu")
    build = machine.torch_build_fact(fact)
    assert build.found == ("cpu" if fails else "for CPU only, although there are devices")


def test_a_place_that_cannot_be_written_and_one_that_is_nearly_full(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert machine.folder_fact(tmp_path / "runs") == Fact(
        name="place for runs",
        state=State.MISSING,
        found=f"{tmp_path} is not writable",
        action="record with run -o DIR",
    )
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=5 << 20))
    assert machine.folder_fact(tmp_path).found == f"{tmp_path}: only 5.00 MiB free"


def test_no_loopback(monkeypatch):
    def bind(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket.socket, "bind", bind)
    assert machine.loopback_fact().found == "127.0.0.1: Operation not permitted"


def test_autostart_is_there_where_the_wheel_is(monkeypatch, tmp_path):
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.setattr(sys, "path", [str(packages)])
    monkeypatch.setattr(machine.sysconfig, "get_path", lambda _: str(packages))
    assert machine.autostart_fact().state is State.LIMITED
    (packages / machine.AUTOSTART).write_text("")
    assert machine.autostart_fact().state is State.OK


def fact(state, name="x", action=""):
    return Fact(name=name, state=state, found="found", action=action)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([State.OK], "Runs can be recorded here (tried)."),
        ([State.OK, State.LIMITED], "Runs can be recorded here (tried); one thing is limited."),
        ([State.LIMITED, State.LIMITED], "Runs can be recorded here (tried); 2 things are limited."),
        ([State.MISSING, State.LIMITED], "Nothing can be recorded here: x."),
    ],
)
def test_the_verdict(states, said):
    assert verdict([fact(state) for state in states], is_tried=True).text == said


def test_the_report():
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(doctor_report([fact(State.OK, "torch"), fact(State.LIMITED, "HTA", "install it")], is_tried=False))
    assert [line.rstrip() for line in console.export_text().splitlines()] == [
        "Runs can be recorded here (not tried); one thing is limited.",
        "",
        "torch  found",
        "HTA    limited: found",
        "",
        "- HTA: install it",
    ]


def test_a_trial_is_read_as_any_run():
    facts, numbers = _trial._read(FSDP2)
    assert [(one.name, str(one.state), one.found) for one in facts] == [
        ("trial", "ok", "FSDP2 reshard_after_forward=True, 5 units, 2 ranks, on CPU, gloo"),
        ("allocator events", "ok", "recorded"),
        ("units", "ok", "recorded"),
        ("collectives", "ok", "recorded"),
        ("Kineto traces", "limited", "not recorded: switched off or no step in the window"),
        ("NVML", "limited", "not recorded: no NVIDIA driver"),
        ("ledger", "ok", "12,948 events of 2 ranks, 0 off, UNKNOWN 0.00 % of a peak of 10.98 MiB"),
    ]
    assert (numbers["num_errors"], numbers["backend"]) == (0, "gloo")


def test_a_trial_that_fails_says_why(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\n  RuntimeError: no gloo here\nexit code 1\n")
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_kwargs: failed)
    (told,), numbers = _trial.try_out()
    assert (str(told.state), told.found, numbers) == ("missing", "exit code 1: RuntimeError: no gloo here", None)


def test_a_torch_that_cannot_be_imported_is_said(monkeypatch):
    def import_torch():
        raise ImportError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(_trial, "_num_ranks", import_torch)
    (told,), numbers = _trial.try_out()
    assert (told.found, numbers) == (
        "torch cannot be imported: libcudart.so.12: cannot open shared object file",
        None,
    )


def test_nothing_is_tried_where_something_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(machine, "facts", lambda _: [fact(State.MISSING, "torch", "get it")])
    monkeypatch.setattr(_trial, "try_out", lambda: pytest.fail("tried"))
    assert main(["doctor", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["trial"] is None
    assert document["facts"] == [{"name": "torch", "state": "missing", "found": "found", "action": "get it"}]


@pytest.mark.slow
def test_a_real_trial_leaves_nothing_behind(tmp_path):
    done = fsdp_profile("doctor", "--json", cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    trial = json.loads(done.stdout)["trial"]
    assert (trial["num_errors"], trial["sources"]["Kineto traces"]) == (0, "recorded")
    assert list(Path(tmp_path).iterdir()) == []
