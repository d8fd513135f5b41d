"""Live bytes at one event by the source line, and by the module, that allocated them."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsdp_profile.analysis.memory.ledger import blocks_at
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.ingest.tables import numbers, strings

_SITE: Final = re.compile(r"(.*):(\d+) (.*)")
"""'train.py:12 forward'; a path may hold spaces and colons."""


RECOMPUTED: Final = "recomputed"
"""Name of activations that a checkpoint made again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceLine:
    """One line of the user's code, and what it had allocated that was live."""

    file: str
    line: int
    function: str
    size_bytes: int
    num_blocks: int
    by_category: dict[Category, int]
    """Largest first."""


def source_lines(run: Run, *, rank: int, event: int) -> list[SourceLine] | None:
    """Lines by live bytes, most first; blocks of no own line are left out. None where no lines were recorded."""
    if not any(strings(run.table("allocations", rank=rank), "site")):
        return None
    blocks = blocks_at(run, rank=rank, event=event)
    site, category = strings(blocks, "site"), strings(blocks, "category")
    size = numbers(blocks, "size_bytes")
    found = []
    for place in dict.fromkeys(site.tolist()):
        if not place:
            continue
        mine = site == place
        held = {Category(word): int(size[mine & (category == word)].sum()) for word in np.unique(category[mine])}
        parts = _SITE.fullmatch(place)
        file, line, function = parts.groups() if parts is not None else (place, "", "")
        found.append(
            SourceLine(
                file=file,
                line=int(line) if line.isdecimal() else 0,
                function=function,
                size_bytes=int(size[mine].sum()),
                num_blocks=int(mine.sum()),
                by_category=dict(sorted(held.items(), key=lambda item: -item[1])),
            )
        )
    return sorted(found, key=lambda s: (-s.size_bytes, s.file, s.line))


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleBytes:
    """What one module's forward had allocated that was live, the modules inside it apart."""

    module: str
    """Its path; '(root)' is the model itself."""
    size_bytes: int
    activation_bytes: int
    """Of it, activations, recomputed ones included."""
    recomputed_bytes: int
    """Of those, made again in backward by a checkpoint."""
    num_blocks: int


def modules_at(run: Run, *, rank: int, event: int) -> list[ModuleBytes] | None:
    """Modules by live activations, most first: allocated by, which is not always who saved them.

    None where no modules were recorded.
    """
    if not any(strings(run.table("allocations", rank=rank), "module")):
        return None
    blocks = blocks_at(run, rank=rank, event=event)
    module, size = strings(blocks, "module"), numbers(blocks, "size_bytes")
    is_activation = strings(blocks, "category") == Category.ACTIVATION.value
    is_again = is_activation & (strings(blocks, "name") == RECOMPUTED)
    found = []
    for path in dict.fromkeys(module.tolist()):
        mine = module == path
        if path:
            found.append(
                ModuleBytes(
                    module=path,
                    size_bytes=int(size[mine].sum()),
                    activation_bytes=int(size[mine & is_activation].sum()),
                    recomputed_bytes=int(size[mine & is_again].sum()),
                    num_blocks=int(mine.sum()),
                )
            )
    return sorted(found, key=lambda m: (-m.activation_bytes, -m.size_bytes, m.module))
