"""fsdp-profile: where the memory of a distributed PyTorch run goes, and what sharding buys.

Importing this package imports nothing else, so that it costs a training process nothing; each public name brings what
it needs when it is first used (docs/api.md).
"""

TYPE_CHECKING = False  # as in typing, without importing it
if TYPE_CHECKING:
    from fsdp_profile.analysis.findings.finding import Finding
    from fsdp_profile.analysis.memory.ledger import Peak
    from fsdp_profile.api import Run, RunComparison, compare, import_, load_run
    from fsdp_profile.capture.api import profile
    from fsdp_profile.core.errors import (
        FsdpProfileError,
        InputError,
        MissingExtraError,
        OutputError,
        SchemaError,
        SimulationError,
        UsageError,
    )

__version__ = "0.1.0"

__all__ = [
    "Finding", "FsdpProfileError", "InputError", "MissingExtraError", "OutputError", "Peak", "Run", "RunComparison",
    "SchemaError", "SimulationError", "UsageError", "__version__", "compare", "import_", "load_run", "profile",
]  # fmt: skip

_HOME = {
    "Finding": "analysis.findings.finding",
    "Peak": "analysis.memory.ledger",
    "profile": "capture.api",
    **dict.fromkeys(("Run", "RunComparison", "compare", "import_", "load_run"), "api"),
}
"""Module that a public name comes from; errors come from core.errors."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'fsdp_profile' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"fsdp_profile.{_HOME.get(name, 'core.errors')}"), name)
