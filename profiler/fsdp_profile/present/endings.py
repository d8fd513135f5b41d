"""How a run and each of its ranks ended."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fsdp_profile.analysis.run import Run
from fsdp_profile.core.humanize import listed
from fsdp_profile.core.manifest import Manifest, RankRecord
from fsdp_profile.core.schema import Ending
from fsdp_profile.present.values import Sentence, joined, name, say, strong

MAX_MESSAGE_CHARS: Final = 240
"""An exception's message is cut in its middle to this length."""
_MAX_RANGES: Final = 8
_VERBS: Final = {
    Ending.EXITED: ("exited", "exited"),
    Ending.EXCEPTION: ("raised an uncaught exception", "raised an uncaught exception"),
    Ending.SIGNAL: ("was killed by a signal", "were killed by a signal"),
    Ending.UNKNOWN: ("ended, and how is not known", "ended, and how is not known"),
}
"""The predicate for one rank and for several."""
FAILED_ENDINGS: Final = frozenset(_VERBS)
"""Endings of a rank that did not reach the end of the script."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endings:
    """How a run ended, and the ranks that did not complete."""

    is_known_to_fail: bool
    """The run is not complete."""
    summary: Sentence
    problems: tuple[Sentence, ...]
    """One sentence for each way in which ranks failed, and one for ranks that left no record."""

    @property
    def sentence(self) -> Sentence:
        """The summary and the problems in one line."""
        return joined((self.summary, *self.problems), " ")


def endings(manifest: Manifest) -> Endings:
    """How the run ended; of an imported run the ends of the processes are not known."""
    num_ranks = len(manifest.ranks)
    if manifest.is_imported and manifest.complete:
        summary = say("How the processes ended is not known: ", _counted(num_ranks, "was", "were"), " imported.")
        return Endings(is_known_to_fail=False, summary=summary, problems=())
    if manifest.is_imported:
        summary = say(strong("NOT COMPLETE"), ": a part of the imported files is missing; see the warnings.")
        return Endings(is_known_to_fail=True, summary=summary, problems=())
    if manifest.complete:
        summary = say("Complete: ", _counted(num_ranks or manifest.world_size), " reached the end of the script.")
        return Endings(is_known_to_fail=False, summary=summary, problems=())
    problems = _problems(manifest)
    why = "." if problems else ": no rank is known to have failed; see the warnings."
    return Endings(is_known_to_fail=True, summary=say(strong("NOT COMPLETE"), why), problems=problems)


def _problems(manifest: Manifest) -> tuple[Sentence, ...]:
    found: dict[tuple[Ending, int | None, str], list[int]] = {}
    for record in manifest.ranks:
        if record.ending in _VERBS:
            found.setdefault((record.ending, record.exit_code, record.message), []).append(record.rank)
    problems = [_problem(*how, ranks) for how, ranks in found.items()]
    missing = manifest.world_size - len(manifest.ranks)
    if missing > 0:
        problems.append(say(f"{missing:,} of {_counted(manifest.world_size)} left no record."))
    return tuple(problems)


def _problem(ending: Ending, exit_code: int | None, message: str, ranks: list[int]) -> Sentence:
    verb = _VERBS[ending][len(ranks) > 1]
    code = "" if exit_code is None else f", exit code {exit_code}"
    return say(f"{ranks_text(ranks)} {verb}{code}", *((": ", name(_cut(message))) if message else (".",)))


def lost_folders(run: Run) -> Sentence | None:
    """Ranks that recorded something and whose folder is not in the run; None where all folders are there."""
    lost = [record.rank for record in run.manifest.ranks if record.pid and record.rank not in run.ranks]
    if not lost:
        return None
    whose = "its" if len(lost) == 1 else "their"
    return say(f"{ranks_text(lost)} recorded too, but {whose} folder is not in ", name(str(run.path)), ".")


def ending_text(record: RankRecord | None) -> str:
    """How the process of one rank ended, for a cell."""
    if record is None:
        return "no record"
    code = "" if record.exit_code is None or record.ending is Ending.COMPLETED else f", exit code {record.exit_code}"
    return f"{record.ending.label}{code}"


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as the subject of a sentence; of very many ranges the first ones.

    >>> ranks_text([3]), ranks_text([0, 1, 2, 5])
    ('Rank 3', 'Ranks 0-2, 5')
    """
    parts = listed(ranks).capitalize().split(", ")
    more = " and others" if len(parts) > _MAX_RANGES else ""
    return ", ".join(parts[:_MAX_RANGES]) + more


def _counted(num_ranks: int, one: str = "", several: str = "") -> str:
    text = "the rank" if num_ranks == 1 else f"{num_ranks:,} ranks"
    return " ".join(filter(None, [text, one if num_ranks == 1 else several]))


def _cut(message: str) -> str:
    half = MAX_MESSAGE_CHARS // 2
    return message if len(message) <= MAX_MESSAGE_CHARS else f"{message[:half]}…{message[-half:]}"
