import os
import socket
import subprocess
import sys
from itertools import pairwise

import pytest

from fsdp_dashboard import launch
from fsdp_dashboard.serving import served
from fsdp_profile.commands import main
from fsdp_profile.core.errors import InputError, MissingExtraError


def options(words):
    return {name: value for name, value in pairwise(words) if name.startswith("--")}


def test_the_server_listens_on_this_machine_only_and_asks_nothing():
    found = options(launch.command(port=8123, browser=False))
    assert found["--server.address"] == "127.0.0.1"
    assert found["--server.port"] == "8123"
    assert found["--server.headless"] == "true"
    assert found["--browser.gatherUsageStats"] == "false"
    assert found["--server.showEmailPrompt"] == "false"
    assert found["--server.fileWatcherType"] == "none"


def test_only_names_of_this_machine_are_answered():
    words = launch.command(browser=False)
    hosts = [value for name, value in pairwise(words) if name == "--server.allowedHosts"]
    assert hosts == ["localhost", "127.0.0.1"]


def test_a_browser_opens_and_a_port_is_found_unless_told_otherwise():
    found = options(launch.command())
    assert found["--server.headless"] == "false"
    assert "--server.port" not in found


def test_every_option_exists_in_the_installed_streamlit():
    from streamlit import config

    known = config.get_config_options(force_reparse=False)
    named = {word.removeprefix("--") for word in launch.command(port=1) if word.startswith("--")}
    assert named - set(known) == set()


def test_a_path_without_a_run_is_refused_before_the_server_starts(tmp_path):
    with pytest.raises(InputError, match="no recorded run in it"):
        launch.command([tmp_path])


def test_a_path_that_cannot_be_passed_on_is_refused(make_run):
    with pytest.raises(InputError, match="open the folder above it"):
        launch.command([make_run(f"at 12{os.pathsep}30").path])


def test_a_missing_extra_is_one_line(monkeypatch):
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fsdp-profile\[dashboard\]'"):
        launch.command()


def test_the_environment_carries_the_runs_and_the_packages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = launch.environment(["a", tmp_path / "b"], base={"PYTHONPATH": "mine", "HOME": "/h"})
    assert found[launch.ENV_RUNS] == os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")])
    assert found["PYTHONPATH"].endswith(f"{os.pathsep}mine")
    assert found["HOME"] == "/h"
    assert launch.ENV_RUNS not in launch.environment(base={})


def test_launching_imports_neither_streamlit_nor_torch():
    script = """
import sys
from fsdp_dashboard import launch
from fsdp_dashboard.serving import served
from fsdp_profile.commands import main
launch.command()
print({"streamlit", "torch"} & set(sys.modules))
"""
    environment = launch.environment()
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_a_port_that_is_taken_is_one_line(capsys):
    with socket.socket() as taken:
        taken.bind((launch.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["dashboard", "--port", str(port)]) == 2
    assert capsys.readouterr().err == (
        f"fsdp-profile: --port {port}: taken by another process; choose another, or leave it out\n"
    )
    assert launch.is_free(port)


def test_a_server_that_does_not_start_tells_what_it_said(monkeypatch):
    monkeypatch.setattr(launch, "command", lambda *_, **__: [sys.executable, "-c", "print('no such page')"])
    with pytest.raises(RuntimeError, match="the server did not start: no such page"), served([]):
        pass
