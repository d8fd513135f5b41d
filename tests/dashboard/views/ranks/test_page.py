import pytest
from dashboard.screen import MIB, figure, table, trace

from fsdp_profile.analysis.ranks.overview import rank_summaries


def values(array):
    """Numbers of a trace: plotly sends arrays as base64."""
    if isinstance(array, list):
        return array
    import base64

    import numpy as np

    return np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"]).tolist()


def test_ranks_show_peaks_step_times_and_endings(opened, make_run):
    run = make_run("fsdp2")
    app = opened(run.path, page="ranks")
    rows = table(app)
    for row, rank in enumerate(rank_summaries(run)):
        shown = rows.iloc[row]
        assert shown["rank"] == rank.rank
        assert shown["peak (MiB)"] == pytest.approx(rank.peak.allocated_bytes / MIB, abs=5e-4)
        assert shown["median step (ms)"] == rank.median_step_ns / 1e6
        assert shown["ended"] == "completed"
    assert rows["reserved peak (MiB)"].isna().all()
    assert values(trace(figure(app, 1), "rank 1")["y"]) == [40.0, 40.0, 40.0]
