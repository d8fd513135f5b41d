"""Let gloo's workers become idle before their process group is destroyed.

[Note: gloo's workers and the GIL] torch 2.13 (seen on CPU, gloo, DDP): a collective issued in backward keeps Python's
context in its work, so the worker that drops the work needs the GIL. If the script destroys the group within a
millisecond of its last backward, the main thread joins that worker with the GIL held, and both wait forever.
This happens without the capture too; with it, in about one of six runs of one script. A pause that releases the GIL
avoids it.
"""

import functools
import sys
import time
from typing import Any, Final

PAUSE_S: Final = 0.05


def install(module: Any) -> None:
    """Wrap `destroy_process_group`, for good: the window may be over long before the group is destroyed."""
    original = module.destroy_process_group

    @functools.wraps(original)
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        time.sleep(PAUSE_S)
        return original(*args, **kwargs)

    for place in (module, sys.modules.get("torch.distributed")):
        if getattr(place, "destroy_process_group", None) is original:
            place.destroy_process_group = destroy_process_group  # type: ignore[union-attr]
