"""Runs in Python and in notebooks: frames, numbers, and pages and figures that show where they are named.

Everything here asks the analysis that `show`, `compare` and `check` ask, so the numbers are the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsdp_profile.analysis.check.limits import CheckReport, Limits, check
from fsdp_profile.analysis.compare import peaks as comparing
from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.findings.finding import Finding
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.memory.ledger import Peak
from fsdp_profile.analysis.ranks.overview import worst_rank
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.run import load_run as open_run
from fsdp_profile.analysis.summary import run_summary
from fsdp_profile.analysis.units.summaries import UnitSummary, unit_summaries
from fsdp_profile.core.errors import InputError, MissingExtraError
from fsdp_profile.core.humanize import bytes_text, listed
from fsdp_profile.core.manifest import Manifest
from fsdp_profile.export.table import TIMELINE, table_of
from fsdp_profile.render.html.report import comparison_html
from fsdp_profile.render.html.sections import overview_html
from fsdp_profile.render.svg.charts import chart_svg
from fsdp_profile.render.terminal.compare import verdict

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A chart that a notebook shows; SVG, so that it needs no library and no network."""

    svg: str

    def save(self, path: Path | str) -> None:
        """Write it as a file."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRun:
    """A run to ask; shown as its peak by category."""

    run: Run = field(repr=False)
    """For the functions of `fsdp_profile.analysis`."""

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.run.name

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that recorded something."""
        return self.run.ranks

    @property
    def manifest(self) -> Manifest:
        """What ran, where, and what was recorded."""
        return self.run.manifest

    @property
    def peak(self) -> Peak | None:
        """The highest peak of all ranks; None without allocator events."""
        rank = worst_rank(self.run)
        return ledger.peak(self.run, rank=rank) if rank is not None else None

    def summary(self) -> dict[str, Any]:
        """The document of `show --json`."""
        return run_summary(self.run)

    def findings(self) -> list[Finding]:
        """What the run says about itself."""
        return findings(self.run)

    def units(self, *, rank: int | None = None) -> list[UnitSummary]:
        """Units of a rank, by default of the one with the highest peak."""
        return unit_summaries(self.run, rank=self._rank(rank))

    def table(self, name: str = TIMELINE, *, rank: int | None = None) -> pa.Table:
        """A table of the run, of one rank or of all: see docs/sharing.md for the names."""
        return table_of(self.run, table=name, rank=rank)

    def frame(self, name: str = TIMELINE, *, rank: int | None = None) -> "DataFrame":
        """The same as a pandas frame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as e:
            raise MissingExtraError("a frame", "dashboard") from e
        found: pd.DataFrame = self.table(name, rank=rank).to_pandas(strings_to_categorical=False)
        return found

    def memory_figure(self, *, rank: int | None = None) -> Figure:
        """Memory over time by category."""
        return Figure(svg=chart_svg(self.run, chart="memory", rank=rank))

    def peak_figure(self, *, rank: int | None = None) -> Figure:
        """What the peak is made of."""
        return Figure(svg=chart_svg(self.run, chart="peak", rank=rank))

    def check(self, *baselines: "RecordedRun", **limits: Any) -> CheckReport:
        """What `fsdp-profile check` says; `limits` are the fields of `fsdp_profile.analysis.check.limits.Limits`."""
        return check(self.run, limits=Limits(**limits), baselines=[base.run for base in baselines])

    def _rank(self, rank: int | None) -> int:
        chosen = worst_rank(self.run) if rank is None else rank
        if chosen is None:
            raise InputError(f"{self.run.path}: no allocator events in it; name a rank")
        return chosen

    def __repr__(self) -> str:
        peak = self.peak
        told = "no allocator events" if peak is None else f"peak {bytes_text(peak.allocated_bytes)} on rank {peak.rank}"
        return f"<run {self.name}: {self.manifest.strategy}, {listed(self.ranks)}, {told}>"

    def _repr_html_(self) -> str:
        return overview_html(self.run)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunComparison:
    """Runs on one scale; shown as what changed."""

    comparison: comparing.Comparison

    @property
    def verdict(self) -> str:
        """One sentence."""
        base = next(c for c in self.comparison.runs if c.run is self.comparison.baseline)
        return verdict([c for c in self.comparison.runs if c is not base], base)

    def frame(self) -> "DataFrame":
        """Bytes at the peak: a row per category, a column per run.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as e:
            raise MissingExtraError("a frame", "dashboard") from e
        columns = {c.run.name: {str(k): size for k, size in c.peak.by_category.items()} for c in self.comparison.runs}
        return pd.DataFrame(columns).fillna(0).astype("int64")

    def __repr__(self) -> str:
        return f"<comparison: {self.verdict}>"

    def _repr_html_(self) -> str:
        return comparison_html(self.comparison, [c.run.name for c in self.comparison.runs])


def load_run(path: Path | str) -> RecordedRun:
    """Open a run directory or a bundle.

    Raises:
        InputError: neither of them, or a bundle that is not to be trusted.
        SchemaError: written by an unknown major version.
    """
    return RecordedRun(run=open_run(path))


def compare(*runs: RecordedRun, baseline: RecordedRun | None = None) -> RunComparison:
    """Two or more runs against the one that replicates most, or against `baseline`, which is one of them.

    Raises:
        InputError: fewer than two runs, or one without allocator events.
    """
    found: Sequence[Run] = [one.run for one in runs]
    return RunComparison(comparison=comparing.compare(list(found), baseline=baseline.run if baseline else None))
