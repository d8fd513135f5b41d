"""The doorway's part on the questions of a newcomer. Cached and guarded as data.py is."""

from fsdp_dashboard.data import RunRef, ask
from fsdp_profile.analysis.findings import questions as questions
from fsdp_profile.analysis.findings.questions import Answers


def answers(ref: RunRef) -> Answers:
    """What a newcomer asks of a run."""
    found: Answers = ask(questions.answers, ref)
    return found
