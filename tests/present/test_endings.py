"""How a run ended: each way to fail, and ranks that left no record."""

import pytest

from fsdp_profile.core.manifest import Manifest, RankRecord
from fsdp_profile.core.schema import Ending
from fsdp_profile.present.endings import MAX_MESSAGE_CHARS, ending_text, endings
from fsdp_profile.present.values import Mark


def manifest(*records: RankRecord, world_size: int = 0, complete: bool = False, imported: bool = False) -> Manifest:
    extra = {"imported": []} if imported else {}
    return Manifest(
        name="r", created="", ranks=list(records), world_size=world_size, complete=complete, extra=extra
    )  # fmt: skip


def test_each_way_to_fail_is_one_sentence_and_ranks_without_a_record_are_counted():
    found = endings(
        manifest(
            RankRecord(rank=0, ending=Ending.COMPLETED, exit_code=0),
            RankRecord(rank=1, ending=Ending.EXCEPTION, exit_code=1, message="KeyError: 'x'"),
            RankRecord(rank=2, ending=Ending.SIGNAL, exit_code=-15),
            RankRecord(rank=3, ending=Ending.SIGNAL, exit_code=-15),
            RankRecord(rank=4, ending=Ending.EXITED, exit_code=3),
            RankRecord(rank=5, ending=Ending.UNKNOWN),
            world_size=8,
        )
    )
    assert [one.text for one in (found.summary, *found.problems)] == [
        "NOT COMPLETE.",
        "Rank 1 raised an uncaught exception, exit code 1: KeyError: 'x'",
        "Ranks 2-3 were killed by a signal, exit code -15.",
        "Rank 4 exited, exit code 3.",
        "Rank 5 ended, and how is not known.",
        "2 of 8 ranks left no record.",
    ]


def test_a_message_is_a_name_from_the_run_and_is_cut_in_its_middle():
    found = endings(manifest(RankRecord(rank=0, ending=Ending.EXCEPTION, message="x" * 5_000), world_size=1))
    [part] = [part for part in found.problems[0].parts if part.mark is Mark.NAME]
    assert (len(part.text), part.text.count("…")) == (MAX_MESSAGE_CHARS + 1, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"world_size": 2, "complete": True}, "Complete: 2 ranks reached the end of the script."),
        ({}, "NOT COMPLETE: no rank is known to have failed; see the warnings."),
        ({"complete": True, "imported": True}, "How the processes ended is not known: 0 ranks were imported."),
        ({"imported": True}, "NOT COMPLETE: a part of the imported files is missing; see the warnings."),
    ],
)
def test_without_a_failed_rank_there_is_one_sentence(given, said):
    assert endings(manifest(**given)).sentence.text == said


def test_the_ending_of_one_rank_is_a_label_with_its_exit_code():
    assert ending_text(RankRecord(rank=0, ending=Ending.COMPLETED, exit_code=0)) == "completed"
    assert ending_text(RankRecord(rank=0, ending=Ending.EXCEPTION, exit_code=1)) == "uncaught exception, exit code 1"
    assert ending_text(RankRecord(rank=0, ending=Ending.IMPORTED)) == "not known: imported"
    assert ending_text(None) == "no record"
