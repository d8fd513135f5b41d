import re

from builder import small_step
from dashboard.figures import panel

from fsdp_dashboard.charts.legend import legend_html
from fsdp_dashboard.views.memory.charts import memory_figure


def test_the_legend_names_what_is_drawn():
    entries = re.findall(r"</span>([^<]+)</span>", legend_html(memory_figure([panel(small_step().build())])))
    assert entries == ["parameters", "activations"]
