"""What can be recorded on this machine, tried out.

Looks at torch, devices, disk and extras, then records three steps of a tiny
FSDP2 model on this machine and reports what each source recorded. The exit code is
1 where nothing can be recorded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsdp_profile.core.machine import Fact


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile doctor`."""
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, nothing else")
    parser.add_argument("--no-trial", action="store_true", help="check only, record nothing")


def run(args: argparse.Namespace) -> int:
    """Check the machine, record a trial, print the result."""
    import sys

    from fsdp_profile.capture.machine import facts
    from fsdp_profile.core.machine import State

    found = facts(Path("runs"))
    trial: dict[str, Any] | None = None
    if not args.no_trial and all(fact.state is not State.MISSING for fact in found):
        from fsdp_profile.commands._trial import try_out

        if not args.json:
            print("recording three steps of a tiny model ...", file=sys.stderr, flush=True)
        tried, trial = try_out()
        found += tried
    is_able = all(fact.state is not State.MISSING for fact in found)
    if args.json:
        _print_json(found, trial)
    else:
        from fsdp_profile.render.terminal.console import console
        from fsdp_profile.render.terminal.doctor import doctor_report

        console().print(doctor_report(found, is_tried=trial is not None))
    return 0 if is_able else 1


def _print_json(found: list[Fact], trial: dict[str, Any] | None) -> None:
    import json
    from dataclasses import asdict

    from fsdp_profile import __version__

    facts = [{**asdict(fact), "state": str(fact.state)} for fact in found]
    print(json.dumps({"schema": "1.0", "version": __version__, "facts": facts, "trial": trial}, indent=2))
