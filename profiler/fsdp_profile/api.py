"""The public Python API: runs to ask, to compare and to look at in a notebook.

`Run` is the run that every function of `fsdp_profile.analysis` takes, with shortcuts to the questions asked most. The
answers are those of `show`, `compare` and `check`, so the numbers are the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from fsdp_profile.analysis import run as runs
from fsdp_profile.analysis.check.limits import CheckReport, Limits, check
from fsdp_profile.analysis.compare import peaks
from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.findings.finding import Finding
from fsdp_profile.analysis.memory.ledger import Peak, peak
from fsdp_profile.analysis.ranks.overview import worst_rank
from fsdp_profile.analysis.summary import run_summary
from fsdp_profile.analysis.units.summaries import UnitSummary, unit_summaries
from fsdp_profile.core.errors import InputError, MissingExtraError
from fsdp_profile.core.humanize import bytes_text, listed
from fsdp_profile.core.layout import claim_run_dir
from fsdp_profile.core.text import plain
from fsdp_profile.export.table import TIMELINE, table_of
from fsdp_profile.ingest.imported.run import import_files
from fsdp_profile.present.compare import verdict
from fsdp_profile.render.html.report import comparison_html
from fsdp_profile.render.html.sections import overview_html
from fsdp_profile.render.svg.charts import chart_svg

if TYPE_CHECKING:
    from pandas import DataFrame

_NO_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A chart that a notebook shows; SVG, so that it needs no library and no network."""

    svg: str

    def save(self, path: Path | str) -> None:
        """Write the chart as a file."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Run(runs.Run):
    """A recorded run. A notebook shows it as its peak by category."""

    @property
    def peak(self) -> Peak | None:
        """The highest peak of all ranks over the training steps; None without allocator events."""
        rank = worst_rank(self)
        return peak(self, rank=rank) if rank is not None else None

    def summary(self) -> dict[str, object]:
        """The document of `show --json`."""
        return run_summary(self)

    def findings(self) -> list[Finding]:
        """The findings of the run, the most severe first."""
        return findings(self)

    def units(self, *, rank: int | None = None) -> list[UnitSummary]:
        """The units of a rank, by default of the one with the highest peak.

        Raises:
            InputError: no allocator events and no rank named.
        """
        return unit_summaries(self, rank=self._rank(rank))

    def arrow(self, name: str = TIMELINE, *, rank: int | None = None) -> pa.Table:
        """A table of the run as docs/sharing.md names them, of one rank or of all; column `rank` first.

        Raises:
            UsageError: no such table.
            InputError: no such rank, or its files are damaged.
        """
        return table_of(self, table=name, rank=rank)

    def frame(self, name: str = TIMELINE, *, rank: int | None = None) -> "DataFrame":
        """The same table as a pandas frame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        _require_pandas()
        found: DataFrame = self.arrow(name, rank=rank).to_pandas(strings_to_categorical=False)
        return found

    def memory_figure(self, *, rank: int | None = None) -> Figure:
        """Memory over time by category, of a rank, by default of the one with the highest peak."""
        return Figure(svg=chart_svg(self, chart="memory", rank=rank))

    def peak_figure(self, *, rank: int | None = None) -> Figure:
        """The peak of a rank by category, by default of the one with the highest peak."""
        return Figure(svg=chart_svg(self, chart="peak", rank=rank))

    def check(self, *baselines: runs.Run, limits: Limits = _NO_LIMITS) -> CheckReport:
        """The verdicts of `fsdp-profile check` against limits and baselines."""
        return check(self, limits=limits, baselines=baselines)

    def _rank(self, rank: int | None) -> int:
        chosen = worst_rank(self) if rank is None else rank
        if chosen is None:
            raise InputError(f"{self.path}: no allocator events in it; name a rank")
        return chosen

    def __repr__(self) -> str:
        found = self.peak
        where = (
            "no allocator events" if found is None else f"peak {bytes_text(found.allocated_bytes)} on rank {found.rank}"
        )
        return f"<run {self.name}: {self.manifest.strategy}, {listed(self.ranks)}, {where}>"

    def _repr_html_(self) -> str:
        return overview_html(self)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RunComparison(peaks.Comparison):
    """Two or more runs on one scale. A notebook shows what changed."""

    @property
    def verdict(self) -> str:
        """What the other runs need against the baseline, in one sentence."""
        return plain(verdict(self).text)

    def frame(self) -> "DataFrame":
        """Bytes at the peak: a row for each category, a column for each run.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        _require_pandas()
        import pandas as pd

        columns = {c.run.name: {str(k): size for k, size in c.peak.by_category.items()} for c in self.runs}
        return pd.DataFrame(columns).fillna(0).astype("int64")

    def __repr__(self) -> str:
        return f"<comparison: {self.verdict}>"

    def _repr_html_(self) -> str:
        return comparison_html(self, [c.run.name for c in self.runs])


def load_run(path: Path | str) -> Run:
    """Open a run directory or a bundle. Nothing is converted and nothing is written.

    Raises:
        InputError: neither of them, or a bundle that is not to be trusted.
        SchemaError: written by an unknown major version.
    """
    found = runs.load_run(path)
    return Run(path=found.path, manifest=found.manifest, ranks=found.ranks, source=found.source)


def compare(*compared: runs.Run, baseline: runs.Run | None = None) -> RunComparison:
    """Compare two or more runs with the one that replicates most, or with `baseline`, which is one of them.

    Raises:
        InputError: fewer than two runs, or one without allocator events.
    """
    found = peaks.compare(list(compared), baseline=baseline)
    return RunComparison(**{field.name: getattr(found, field.name) for field in fields(found)})


def import_(
    paths: Sequence[Path | str], output: Path | str, *, name: str | None = None, rank: int | None = None
) -> Run:
    """Import Kineto traces and CUDA memory snapshots that were recorded elsewhere as a run.

    Args:
        paths: traces (.json, .json.gz) and snapshots (.pickle), told apart by their content.
        output: the new run directory.
        name: name of the run; by default that of its directory.
        rank: the rank of a single trace and a single snapshot, whatever the files say.

    Raises:
        InputError: no file can be used, or two files are of one kind and one rank.
        OutputError: the directory holds something already, or cannot be written.
    """
    run_dir = claim_run_dir(Path(output))
    import_files([Path(path) for path in paths], run_dir, name=name or run_dir.resolve().name, rank=rank)
    return load_run(run_dir)


def _require_pandas() -> None:
    try:
        import pandas as pd
    except ImportError as e:
        raise MissingExtraError("a frame", "dashboard") from e
    assert pd is not None
