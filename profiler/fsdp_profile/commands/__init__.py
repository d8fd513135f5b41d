"""The command line: one verb, one file.

A verb's file has `add_arguments(parser)` and `run(args) -> int`; its docstring is its help text. Floors below are
imported inside `run`, so that `--help` costs nothing.
"""

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from fsdp_profile import __version__
from fsdp_profile.core.errors import FsdpProfileError

EXIT_USAGE = 2


class _Parser(argparse.ArgumentParser):
    """One line instead of the usage and a line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def verbs() -> dict[str, ModuleType]:
    """Every verb by name; the file of a name that is a Python keyword ends with an underscore."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return {name.rstrip("_"): importlib.import_module(f"{__name__}.{name}") for name in names}


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="fsdp-profile",
        description="Where the memory of a distributed PyTorch run goes, and what sharding buys.",
    )
    parser.add_argument("--version", action="version", version=f"fsdp-profile {__version__}")
    found = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)
    for name, module in verbs().items():
        doc = (module.__doc__ or "").strip()
        verb = found.add_parser(
            name,
            help=doc.splitlines()[0].rstrip("."),
            description=doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(verb)
        verb.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `fsdp-profile`; the only place where an error becomes text."""
    args = build_parser().parse_args(argv)
    try:
        return int(args.run(args))
    except FsdpProfileError as e:
        print(f"fsdp-profile: {e}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:  # `fsdp-profile show RUN | head`
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        return 130
