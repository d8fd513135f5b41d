"""What if: the same model under other strategies, on other numbers of ranks, with other batches; no GPU needed."""

import streamlit as st

from fsdp_dashboard import data, state, widgets
from fsdp_dashboard.data import RunRef
from fsdp_dashboard.views.whatif import queries
from fsdp_dashboard.views.whatif.charts import PlanBar, whatif_figure
from fsdp_dashboard.views.whatif.queries import DEFAULT_RECIPE, Choice, Device, Layout, PlanRow
from fsdp_profile.plan.formulas.costs import Basis
from fsdp_profile.present import plan

FROM_RUN = (
    "The first bar was measured; the others are the same ledger with what the choice changes. Another number of ranks "
    "or batch is nearly exact; for another strategy the transient memory of units is modelled. Not included: CUDA "
    "context, NCCL buffers, allocator rounding. The link in the address bar shows the same."
)
_LEFT_OUT = (
    "Not included: CUDA context, NCCL buffers, allocator rounding and fragmentation, workspaces. The link in the "
    "address bar shows the same."
)
FORMULAS = "formulas"
RANKS = ("1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024")
BATCHES = ("1", "2", "4", "8", "16", "32", "64", "128")
SEQUENCES = ("512", "1024", "2048", "4096", "8192", "16384", "32768", "65536", "131072")
FACTORS = ("25", "50", "100", "200", "400", "800", "1600")
NO_DEVICE = "none"


def page() -> None:
    """Formulas of a well-known size, or predictions from one of the chosen runs."""
    st.subheader("What if")
    catalogue = data.catalogue()
    refs = {ref.label: ref for ref in state.current(catalogue).runs}
    columns = st.columns(2)
    with columns[0]:
        source = st.selectbox("Start from", [FORMULAS, *refs], key="whatif", bind="query-params")
    with columns[1]:
        name = st.selectbox("Device", [*queries.DEVICES, NO_DEVICE], index=_h100(), key="device", bind="query-params")
    device = queries.DEVICES.get(name or NO_DEVICE)
    if source is not None and source in refs:
        with widgets.told(source):
            from_run(refs[source], device)
    else:
        formulas(device)


def formulas(device: Device | None) -> None:
    """A model of a well-known size."""
    one, two, three = st.columns(3)
    with one:
        shape = st.select_slider("Parameters", list(queries.SHAPES), "13B", key="params", bind="query-params")
        ranks = st.select_slider("Ranks", RANKS, "8", key="ranks", bind="query-params")
    with two:
        recipe = st.selectbox("Recipe", list(queries.RECIPES), key="recipe", bind="query-params")
        batch = st.select_slider("Batch of a rank", BATCHES, "1", key="batch", bind="query-params")
    with three:
        seq = st.select_slider("Sequence", SEQUENCES, "2048", key="seq", bind="query-params")
        checkpointed = st.toggle("Activation checkpointing", key="ac", bind="query-params")
    layouts = _pick_layouts(queries.LAYOUTS)
    choice = Choice(
        shape=shape, world_size=int(ranks), recipe=recipe or DEFAULT_RECIPE, layouts=layouts, batch=int(batch),
        seq=int(seq), checkpointed=checkpointed,
    )  # fmt: skip
    rows = queries.formula_rows(choice)
    _draw(rows, device)
    st.caption(of_formulas(choice))


def from_run(ref: RunRef, device: Device | None) -> None:
    """The measured run, and what it says about other configurations."""
    measured = queries.measured_row(ref)
    recorded = str(queries.recorded_ranks(ref))
    options = sorted({*RANKS, recorded}, key=int)
    one, two, three = st.columns(3)
    with one:
        ranks = st.select_slider("Ranks", options, recorded, key="ranks", bind="query-params")
    with two:
        batch = st.select_slider("Batch, % of the run's", FACTORS, "100", key="batch_percent", bind="query-params")
    with three:
        seq = st.select_slider("Sequence, % of the run's", FACTORS, "100", key="seq_percent", bind="query-params")
        checkpointed = st.toggle("Add activation checkpointing", key="ac", bind="query-params")
    layouts = _pick_layouts(queries.SIMULATED)
    rows = queries.predicted_rows(
        ref, layouts=layouts, world_size=int(ranks), batch_percent=int(batch), seq_percent=int(seq),
        checkpointed=checkpointed,
    )  # fmt: skip
    _draw([measured, *rows], device)
    st.caption(FROM_RUN)


def _pick_layouts(known: "tuple[Layout, ...]") -> "tuple[Layout, ...]":
    names = st.multiselect(
        "Strategies", [layout.label for layout in known], default=[layout.label for layout in known], key="strategy",
        bind="query-params",
    )  # fmt: skip
    return tuple(layout for layout in known if layout.label in names)


def _draw(rows: list[PlanRow], device: Device | None) -> None:
    if not rows:
        st.info("No strategy is chosen that these ranks can be divided into.", icon=":material/info:")
        return
    bars = [
        PlanBar(
            title=f"{row.layout.label} x {row.world_size}",
            by_category=queries.categories_of(row),
            is_whole=row.peak_bytes is not None,
            remark=remark(row, device),
        )
        for row in rows
    ]
    capacity, title = (None, "") if device is None else (device.total_bytes, device.title)
    drawn = whatif_figure(bars, capacity_bytes=capacity, capacity_title=title)
    widgets.figure(drawn, key="whatif_bars", alt="Bytes of one rank under each strategy, by category")
    widgets.show(plan.plan_table(rows, [device] if device else []), key="whatif_rows", has_note=False)


def of_formulas(choice: Choice) -> str:
    """What was calculated, and what is not in it."""
    shape, recipe = queries.SHAPES[choice.shape], queries.RECIPES[choice.recipe]
    trained = "" if recipe.frozen_bytes is None else ", 1 % of the parameters trained"
    return (
        f"Estimates from formulas: {shape.layers} layers of width {shape.hidden:,}, {recipe.what}{trained}; "
        f"activations by 34 s b h L and the logits. {_LEFT_OUT}"
    )


def remark(row: PlanRow, device: Device | None) -> str:
    """Behind a bar's title: whether it was measured, whether it fits."""
    words = Basis.MEASURED.label if row.basis is Basis.MEASURED else ""
    return ", ".join(part for part in (words, plan.fit(row, device)[0] if device else "") if part)


def _h100() -> int:
    return list(queries.DEVICES).index("h100")


if __name__ == "__main__":
    page()
