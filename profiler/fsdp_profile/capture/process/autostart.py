"""`FSDP_PROFILE=1`: record the ranks of any job whose processes inherit that, started by whatever launcher.

Imported by `fsdp_profile_autostart.pth`, which is installed beside the package, in every Python process that has the
variable; it only waits for a process group there. `FSDP_PROFILE_OUTPUT` names the run directory.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_profile.capture.on_import import C10D
from fsdp_profile.capture.process.late_arm import wait_for_group
from fsdp_profile.core import layout

if TYPE_CHECKING:
    from fsdp_profile.capture.session import Session

VARIABLE = "FSDP_PROFILE"
OUTPUT = "FSDP_PROFILE_OUTPUT"


def _begin() -> "Session | None":
    from fsdp_profile.capture.options import Options
    from fsdp_profile.capture.process.arm import arm_late
    from fsdp_profile.capture.process.join import join_own_run

    if os.environ.pop(VARIABLE, "") != "1":  # a child process of a rank
        return None
    given = os.environ.get(OUTPUT)
    dist = sys.modules[C10D]
    output = Path(given) if given else None
    run_dir = join_own_run(output, rank=dist.get_rank(), world_size=dist.get_world_size())
    return arm_late(run_dir, Options())


def start() -> None:
    """Wait for a process group, unless `fsdp-profile run` started this process."""
    if layout.ENV_RUN_DIR in os.environ or VARIABLE not in os.environ:
        return
    if os.environ[VARIABLE] != "1":
        sys.stderr.write(f"fsdp-profile: {VARIABLE} must be 1 to record; nothing is recorded\n")
        return
    from fsdp_profile.capture.sources.cpu import quiet_kineto

    quiet_kineto(os.environ)
    wait_for_group(_begin)


start()
