"""Loaded by Python at start-up in every process below `fsdp-profile run`; arms the capture in the ranks only.

It first runs the sitecustomize it stands in front of, then takes itself off sys.path and PYTHONPATH again, so that
the script sees the environment it was started with. Where the script starts its ranks itself it stays on PYTHONPATH,
for its descendants, until a process turns out to be a rank.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _is_here(entry: str) -> bool:
    return os.path.abspath(entry or ".") == _HERE


def _restore_environment() -> None:
    entries = [e for e in os.environ.get("PYTHONPATH", "").split(os.pathsep) if e and not _is_here(e)]
    if entries:
        os.environ["PYTHONPATH"] = os.pathsep.join(entries)
    else:
        os.environ.pop("PYTHONPATH", None)


def _run_other_sitecustomize() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _arm() -> None:
    is_in_tree = os.environ.get("FSDP_PROFILE_TREE")
    if not is_in_tree and os.environ.get("FSDP_PROFILE_AGENT_PID") != str(os.getppid()):
        return
    try:
        if is_in_tree:
            from fsdp_profile.capture.process.late_arm import in_tree, wait_for_group

            wait_for_group(lambda: in_tree(when_armed=_restore_environment))
            return
        from fsdp_profile.capture.process.arm import arm

        arm()
    except FileExistsError as e:
        where = e.filename
        sys.stderr.write(f"fsdp-profile: nothing is recorded in this process: {where} is another run's; give -o DIR\n")
    except Exception as e:
        sys.stderr.write(f"fsdp-profile: nothing is recorded in this process: {type(e).__name__}: {e}\n")


sys.path[:] = [entry for entry in sys.path if not _is_here(entry)]
if not os.environ.get("FSDP_PROFILE_TREE"):
    _restore_environment()
_run_other_sitecustomize()
_arm()
