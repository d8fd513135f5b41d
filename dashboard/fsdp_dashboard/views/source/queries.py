"""The doorway's part on source lines: what each had allocated, and the code itself where it is on this machine.

Cached and guarded as data.py is.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fsdp_dashboard.data import RunFacts, RunRef, ask
from fsdp_dashboard.views.source.source_file import NotShown, SourceFile, read_source
from fsdp_profile.analysis.memory import call_sites
from fsdp_profile.analysis.memory.call_sites import SourceLine
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.core import layout
from fsdp_profile.present.call_sites import line_name


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceLines:
    """A peak by source line."""

    peak: Peak
    lines: tuple[SourceLine, ...]
    """Most bytes first; empty where no block was allocated by own code."""

    @property
    def by_name(self) -> dict[str, SourceLine]:
        """The lines as pickers and figures call them."""
        return {line_name(line): line for line in self.lines}

    def called(self, name: str | None) -> SourceLine:
        """The line of a name, or the one with most bytes."""
        return self.by_name.get(name or "", self.lines[0])


def source_lines(ref: RunRef, *, peak: Peak) -> SourceLines | None:
    """The lines whose blocks were live at a peak; None where no lines were recorded."""
    found: list[SourceLine] | None = ask(call_sites.source_lines, ref, rank=peak.rank, event=peak.event)
    return None if found is None else SourceLines(peak=peak, lines=tuple(found))


def why_no_lines(run: RunFacts) -> str:
    """Why a run has no source lines."""
    if run.manifest.is_imported:
        return "the files that were imported have no Python stacks of allocations; record with --stacks"
    return "record with --stacks"


def source_file(ref: RunRef, file: str) -> SourceFile | NotShown:
    """The code of a line's file, as it is now, from the folder of the recording or from the current one."""
    return read_source(file, folders=_folders(ref.path.absolute()))


def has_changed(run: RunFacts, found: SourceFile) -> bool:
    """Whether a file was written after the run began, as far as the run tells when that was."""
    try:
        began_s = datetime.fromisoformat(run.manifest.created).timestamp()
    except (ValueError, OverflowError, OSError):
        return False
    return found.changed_ns / 1e9 > began_s


def _folders(run_dir: Path) -> list[Path]:
    """The working folder of the recording, known by where the run lies, and the current folder.

    Without -o a run is in runs/ of the folder it was recorded in. What the run itself says is not asked: it would
    choose which files are read. See source_file.py.
    """
    above = run_dir.parents[:2]  # runs/NAME or runs/NAME/STRATEGY
    recorded_in = [p.parent for p in above if p.name == layout.DEFAULT_RUNS and p.parent != p.parent.parent]
    return [*recorded_in[:1], Path.cwd()]
