"""Show one recorded run: where its memory went, and what its units and collectives did.

Without a section: what ran, how it ended, the peak of the worst rank and what
it is made of, units, collectives and what recording cost. With `--json` the
whole run is one JSON document, whatever the section: bytes, ns, ratios.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fsdp_profile.commands._opening import damage, open_run
from fsdp_profile.core.errors import FsdpProfileError, InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fsdp_profile.analysis.collectives.cross_rank import CrossRank
    from fsdp_profile.analysis.findings.finding import Finding
    from fsdp_profile.analysis.ranks.overview import RankSummary
    from fsdp_profile.analysis.run import Run

SECTIONS = ("memory", "units", "collectives", "ranks", "findings")

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile show`."""
    parser.add_argument("run_path", metavar="RUN", type=Path, help="a run directory or a bundle")
    parser.add_argument(
        "section", nargs="?", choices=SECTIONS, metavar="SECTION",
        help="memory, units, collectives, ranks or findings: that in full, instead of the overview",
    )  # fmt: skip
    parser.add_argument(
        "--rank", type=int, metavar="R",
        help="the rank whose units, collectives and steps are shown (default: the one with the highest peak)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, nothing else")


def run(args: argparse.Namespace) -> int:
    """Show the run; the exit code is 2 when a part of the run could not be read."""
    if args.json:
        return _print_json(args)
    from fsdp_profile.render.terminal.console import console

    reader = _Reader(open_run(args.run_path))
    page = reader.page(args.section, rank=args.rank)
    console().print(page)
    for problem in reader.problems:
        print(f"fsdp-profile: {problem}", file=sys.stderr)
    return 2 if reader.problems else 0


def _print_json(args: argparse.Namespace) -> int:
    import json

    from fsdp_profile.analysis.summary import run_summary

    found = open_run(args.run_path)
    _check_rank(found, args.rank)
    with damage(found.path):
        document = run_summary(found, rank=args.rank)
    print(json.dumps(document, indent=2, allow_nan=False))
    return 0


def _check_rank(run: Run, rank: int | None) -> None:
    if rank is not None and rank not in run.ranks:
        have = ", ".join(map(str, run.ranks)) or "none"
        raise InputError(f"{run.path}: rank {rank} recorded nothing here (ranks: {have})")


class _Reader:
    """Asks the analysis; an answer that cannot be had becomes a problem, and the rest is shown."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.problems: list[str] = []

    def page(self, section: str | None, *, rank: int | None) -> RenderableType:
        """The overview, or one section under the run's name.

        Raises:
            InputError: the rank that was asked for recorded nothing.
        """
        from fsdp_profile.analysis.findings.why_not_smaller import why_not_smaller
        from fsdp_profile.render.terminal.findings import findings_report
        from fsdp_profile.render.terminal.overview import title
        from fsdp_profile.render.terminal.parts import sections
        from fsdp_profile.render.terminal.ranks import ranks_report

        _check_rank(self.run, rank)
        ranks = self._ranks()
        rank = _worst(ranks) if rank is None else rank
        if section is None:
            return self._overview(ranks, rank)
        if section == "ranks":
            part = ranks_report(ranks, self._cross_rank())
        elif section == "findings":
            tests = self._ask(lambda run, *, rank: why_not_smaller(run), None) or []
            part = findings_report(self._findings(), tests, has_peak=rank is not None)
        elif rank is not None:
            part = {"memory": self._memory, "units": self._units, "collectives": self._collectives}[section](rank)
        else:
            part = None
        return sections([title(self.run, problems=self.problems), part])

    def _overview(self, ranks: list[RankSummary], rank: int | None) -> RenderableType:
        from fsdp_profile.analysis.collectives.exposure import collective_summary
        from fsdp_profile.analysis.collectives.traffic import step_traffic
        from fsdp_profile.analysis.memory.ledger import peak_of_steps
        from fsdp_profile.analysis.memory.postmortem import post_mortems
        from fsdp_profile.analysis.units.summaries import unit_summaries
        from fsdp_profile.render.terminal.overview import Overview, overview_report

        failed = self._ask(lambda run, *, rank: post_mortems(run), None) or ()
        found = Overview(run=self.run, ranks=ranks, rank=rank, problems=self.problems, post_mortems=failed)
        if rank is not None:
            found = replace(
                found,
                step_peaks=self._ask(peak_of_steps, rank) or (),
                units=self._ask(unit_summaries, rank) or (),
                collectives=self._ask(collective_summary, rank),
                per_step=self._ask(step_traffic, rank),
                findings=self._findings(),
            )
        return overview_report(found)

    def _memory(self, rank: int) -> RenderableType:
        from fsdp_profile.analysis.memory.call_sites import modules_at, source_lines
        from fsdp_profile.analysis.memory.device_waterfall import waterfall
        from fsdp_profile.analysis.memory.growth import growth, kept_unsharded
        from fsdp_profile.analysis.memory.host_states import host_states
        from fsdp_profile.analysis.memory.ledger import blocks_at, conservation, peak, peak_of_phases, peak_of_steps
        from fsdp_profile.analysis.spans.recorded import unit_names
        from fsdp_profile.render.terminal.growth import growth_report
        from fsdp_profile.render.terminal.host_states import host_states_report
        from fsdp_profile.render.terminal.memory import memory_report
        from fsdp_profile.render.terminal.parts import sections
        from fsdp_profile.render.terminal.sites import modules_report, source_lines_report

        highest = self._ask(peak, rank)
        names = self._ask(unit_names, rank) or {}
        grown, kept = self._ask(growth, rank) or (), self._ask(kept_unsharded, rank) or ()
        page = memory_report(
            self._ask(peak_of_steps, rank) or (),
            peak=highest,
            blocks=self._ask(partial(blocks_at, event=highest.event), rank) if highest is not None else None,
            unit_names=names,
            law=self._ask(conservation, rank),
            device=self._ask(waterfall, rank),
            phases=self._ask(peak_of_phases, rank) or {},
        )
        lines = self._ask(partial(source_lines, event=highest.event), rank) if highest is not None else None
        sites = source_lines_report(lines, peak_bytes=highest.allocated_bytes) if highest is not None else None
        mods = self._ask(partial(modules_at, event=highest.event), rank) if highest is not None else None
        host = host_states_report(self._ask(host_states, rank))
        return sections([page, host, sites, modules_report(mods), growth_report(grown, kept, unit_names=names)])

    def _units(self, rank: int) -> RenderableType:
        from fsdp_profile.analysis.units.in_flight import in_flight
        from fsdp_profile.analysis.units.summaries import unit_summaries
        from fsdp_profile.render.terminal.parts import sections
        from fsdp_profile.render.terminal.units import in_flight_report, units_report

        totals = units_report(self._ask(unit_summaries, rank) or (), rank=rank)
        return sections([totals, in_flight_report(self._ask(in_flight, rank) or ())])

    def _collectives(self, rank: int) -> RenderableType:
        from fsdp_profile.analysis.collectives.exposure import collective_summary
        from fsdp_profile.analysis.collectives.timeline import BY_GROUP, call_totals, collective_calls
        from fsdp_profile.analysis.collectives.traffic import step_traffic
        from fsdp_profile.analysis.time.breakdown import exposed_by_step, step_breakdowns
        from fsdp_profile.render.terminal.breakdown import breakdown_report, directions_report
        from fsdp_profile.render.terminal.collectives import collectives_report, cross_rank_report, groups_report
        from fsdp_profile.render.terminal.parts import sections

        per_step = self._ask(step_traffic, rank)
        mine = collectives_report(self._ask(collective_summary, rank), rank=rank, per_step=per_step)
        time = breakdown_report(self._ask(step_breakdowns, rank) or {}, rank=rank)
        rows = self._ask(exposed_by_step, rank)
        directions = directions_report(rows, rank=rank) if rows is not None else None
        matches = self._cross_rank()
        calls = self._ask(lambda run, *, rank: collective_calls(run, matches, rank=rank), rank) if matches else None
        groups = groups_report(call_totals(calls, BY_GROUP), rank=rank) if calls is not None else None
        return sections([mine, time, directions, groups, cross_rank_report(matches)])

    def _findings(self) -> list[Finding]:
        from fsdp_profile.analysis.findings.evaluate import findings

        return self._ask(lambda run, *, rank: findings(run), None) or []

    def _cross_rank(self) -> CrossRank | None:
        from fsdp_profile.analysis.collectives.cross_rank import cross_rank

        return self._ask(lambda run, *, rank: cross_rank(run), None)

    def _ranks(self) -> list[RankSummary]:
        from fsdp_profile.analysis.ranks.overview import rank_summary

        found = (self._ask(rank_summary, rank) for rank in self.run.ranks)
        return [summary for summary in found if summary is not None]

    def _ask(self, question: Callable[..., T], rank: int | None) -> T | None:
        """The answer; None and one more problem when the files do not give it."""
        try:
            with damage(self.run.path):
                return question(self.run, rank=rank)
        except FsdpProfileError as e:
            if str(e) not in self.problems:
                self.problems.append(str(e))
            return None


def _worst(ranks: Sequence[RankSummary]) -> int | None:
    """The rank with the highest peak (the lowest such rank), the first one when no peak is known."""
    known = [r.peak for r in ranks if r.peak is not None]
    if known:
        return max(known, key=lambda p: (p.allocated_bytes, -p.rank)).rank
    return ranks[0].rank if ranks else None
