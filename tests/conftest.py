"""Fixtures for all tests: each example recorded once per session."""

import os
from collections.abc import Callable

import pytest
from recording import EXAMPLES, NUM_STEPS, RECORDINGS, TRAFFIC_RECORDINGS, fsdp_profile

from fsdp_profile.analysis.cache import ENV_CACHE
from fsdp_profile.analysis.run import Run, load_run


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Cached answers of the tests stay out of the user's cache folder."""
    os.environ[ENV_CACHE] = str(tmp_path_factory.mktemp("answers"))


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """The recording of an example by name, made on first use."""
    made: dict[str, Run] = {}

    def get(name: str) -> Run:
        if name not in made:
            script, ranks, flags = {**RECORDINGS, **TRAFFIC_RECORDINGS}[name]
            folder = tmp_path_factory.mktemp("runs") / name
            command = ["run", "-n", str(ranks), "-o", str(folder), str(EXAMPLES / script)]
            done = fsdp_profile(*command, "--steps", str(NUM_STEPS), *flags)
            assert done.returncode == 0, done.stderr
            made[name] = load_run(folder)
        return made[name]

    return get
