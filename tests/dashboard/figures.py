"""What the tests of figures share."""

from plotly.graph_objs import Figure

from fsdp_dashboard.views.memory.charts import MemoryPanel
from fsdp_profile.analysis.memory.step_ledger import step_ledger

MIB = 1 << 20
MS = 1_000_000
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** %{x}"


def panel(run, *, step=0, title="small"):
    return MemoryPanel(title=title, step=step_ledger(run, rank=0, step=step))


def trace(figure, name, **more):
    found = [t for t in figure["data"] if t["name"] == name and all(t.get(k) == v for k, v in more.items())]
    assert len(found) == 1, (name, [t["name"] for t in figure["data"]])
    return found[0]


def valid(figure):
    """Plotly's own check of every property."""
    Figure(**figure)
    return figure
