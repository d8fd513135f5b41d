"""fsdp-profile: where the memory of a distributed PyTorch run goes, and what sharding buys.

Importing this package imports nothing else, so that it can sit in every training process for free; `load_run` and
`compare` bring what they need when they are first asked for (docs/notebook.md).
"""

TYPE_CHECKING = False  # as typing's, without importing it
if TYPE_CHECKING:
    from fsdp_profile.api import compare, load_run

__version__ = "0.1.0"

__all__ = ["__version__", "compare", "load_run"]


def __getattr__(name: str) -> object:
    if name in ("compare", "load_run"):
        from fsdp_profile import api

        return getattr(api, name)
    raise AttributeError(f"module 'fsdp_profile' has no attribute '{name}'")
