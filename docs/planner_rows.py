"""Published numbers beside the planner's own, and the table of them in docs/planner.md.

    python docs/planner_rows.py     writes the table anew

Rows of model states must agree to every printed digit. Rows with activations or an allocator in them are estimates:
the table tells the planner's value, its error and what is not modelled. GB is 1e9, GiB is 2**30.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fsdp_profile.plan.formulas.activations import Checkpointing, Transformer, activation_bytes
from fsdp_profile.plan.formulas.costs import ModelSize, Options, PlanRow, plan_row
from fsdp_profile.plan.formulas.deepspeed import Offload, zero2_needs, zero3_needs
from fsdp_profile.plan.formulas.recipes import Recipe, find_recipe
from fsdp_profile.plan.formulas.strategies import Layout, World

PAGE = Path(__file__).with_name("planner.md")
BEGIN, END = "<!-- published numbers: begin -->", "<!-- published numbers: end -->"

GB, GIB, MIB = 1e9, float(1 << 30), float(1 << 20)
UNITS = {"GB": GB, "GiB": GIB, "elements": 1.0, "ratio": 1.0}

T5_3B, T5_3B_LAYER = 2_851_598_336, 32_128 * 1024
T5_SMALL, T5_SMALL_LAYER = 60_506_624, 32_128 * 512
_COOKBOOK_BUCKET = 500_000_000
LLAMA_1B, LLAMA_8B = 1_235_746_816, 8_029_995_008
"""Without norms, as the playbook counts."""
LLAMA_31_8B, LLAMA_70B, LLAMA2_7B, LLAMA_32_3B = 8_030_261_248, 70_553_706_496, 6_738_415_616, 3_212_749_824


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """One published number."""

    what: str
    published: float
    ours: float | None
    """In the same unit; None: the planner has no value for it."""
    unit: str
    digits: int

    @property
    def is_exact(self) -> bool:
        """Equal to every printed digit."""
        return self.ours is not None and round(self.ours, self.digits) == self.published

    @property
    def error_ratio(self) -> float | None:
        """Ours against theirs."""
        return None if self.ours is None else self.ours / self.published - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A source, and what it says."""

    key: str
    config: str
    source: str
    numbers: tuple[Number, ...]
    is_states: bool = True
    """Model states and traffic, in closed form."""
    left_out: str = ""
    """What the planner does not model here."""


def rows() -> Iterator[Published]:
    """Every row of the table, in order."""
    yield from _zero()
    yield from _deepspeed()
    yield from _playbook()
    yield from _courses()
    yield from _estimates()


def _plan(numel: int, recipe: str | Recipe, ranks: int, layout: Layout, **model: object) -> PlanRow:
    options = model.pop("options", None)
    size = ModelSize(numel=numel, **model)  # type: ignore[arg-type]
    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    return plan_row(size, chosen, World(size=ranks), layout, options=options)  # type: ignore[arg-type]


def _n(what: str, published: float, size: float | None, unit: str = "GB", digits: int = 2) -> Number:
    ours = None if size is None else size / UNITS[unit]
    return Number(what=what, published=published, ours=ours, unit=unit, digits=digits)


def _zero() -> Iterator[Published]:
    def of(layout: Layout) -> float:
        return _plan(7_500_000_000, "mixed-adamw", 64, layout).states_bytes

    yield Published(
        key="1", config="7.5B, mixed Adam, 64 ranks", source="ZeRO, figure 1",
        numbers=(
            _n("replicated", 120.0, of(Layout.DDP), digits=0), _n("ZeRO-1", 31.4, of(Layout.ZERO1), digits=1),
            _n("ZeRO-2", 16.6, of(Layout.ZERO2), digits=1), _n("ZeRO-3", 1.9, of(Layout.FSDP), digits=1),
        ),
    )  # fmt: skip
    gpt2 = _plan(1_500_000_000, "mixed-adamw", 1, Layout.DDP)
    yield Published(
        key="3", config="GPT-2 1.5B", source="ZeRO, section 3.1",
        numbers=(_n("states, at least", 24.0, gpt2.states_bytes, digits=0),),
    )  # fmt: skip
    one, eight = (_plan(1_500_000_000, "mixed-adamw", n, Layout.ZERO1).optimizer_bytes for n in (1, 8))
    yield Published(
        key="4", config="1.5B, ZeRO-1, 8 GPUs", source="DeepSpeed, tutorials/zero.md",
        numbers=(_n("Adam, 1 GPU", 18.0, one, digits=0), _n("Adam, 8 GPUs", 2.25, eight)),
    )  # fmt: skip


def _deepspeed() -> Iterator[Published]:
    plain, host = (zero2_needs(2_851_000_000, gpus=8, offload=o) for o in (Offload.NONE, Offload.OPTIMIZER))
    yield Published(
        key="5", config="T5-3B, 8 GPUs, ZeRO-2 (its GB are GiB)", source="DeepSpeed, code-docs/memory.rst",
        numbers=(
            _n("optimizer on the host", 5.31, host.device_bytes, "GiB"), _n("all on GPU", 15.93, plain.device_bytes, "GiB"),
        ),
    )  # fmt: skip

    def live(offload: Offload, *, zero_init: bool = True) -> tuple[float, float]:
        needs = zero3_needs(T5_3B, largest_layer=T5_3B_LAYER, gpus=8, offload=offload, zero_init=zero_init)
        return needs.device_bytes, needs.host_bytes

    def cold(offload: Offload) -> float:
        return zero3_needs(2_851_000_000, largest_layer=32_000_000, gpus=8, offload=offload).device_bytes

    order = (Offload.ALL, Offload.OPTIMIZER, Offload.NONE)
    yield Published(
        key="6", config="the same, ZeRO-3, largest layer 32M", source="DeepSpeed, code-docs/memory.rst",
        numbers=(
            *(_n(f"GPU, {o} offloaded", v, live(o)[0], "GiB") for o, v in zip(order, (0.12, 0.79, 6.10), strict=True)),
            *(_n(f"GPU, {o}, cold", v, cold(o), "GiB") for o, v in zip(order, (0.12, 0.78, 6.09), strict=True)),
            _n("host, all", 71.71, live(Offload.ALL)[1], "GiB"),
            _n("host, all, no zero.Init", 127.48, live(Offload.ALL, zero_init=False)[1], "GiB"),
            _n("host, optimizer", 63.74, live(Offload.OPTIMIZER)[1], "GiB"),
            _n("host, none", 1.47, live(Offload.NONE)[1], "GiB"),
        ),
    )  # fmt: skip
    small = [zero3_needs(T5_SMALL, largest_layer=T5_SMALL_LAYER, gpus=1, offload=o).device_bytes for o in order]
    yield Published(
        key="8", config="t5-small, ZeRO-3, 1 GPU", source="DeepSpeed's estimator",
        numbers=tuple(
            _n(f"GPU, {o} offloaded", v, size, "GiB") for o, v, size in zip(order, (0.06, 0.17, 1.08), small, strict=True)
        ),
    )  # fmt: skip
    states = [_plan(LLAMA_31_8B, "fsdp2-mixed", n, Layout.FSDP).states_bytes for n in (8, 128)]
    yield Published(
        key="10", config="Llama 3.1 8B, 8 against 128 H100", source="torchtitan, llama3_h100_202412",
        numbers=(_n("states saved", 14.02, states[0] - states[1], "GiB"),),
    )  # fmt: skip


def _playbook() -> Iterator[Published]:
    recipe = find_recipe("mixed-adamw")
    for key, name, numel, layers, hidden, digits, sizes, acts in (
        ("18", "8B", LLAMA_8B, 32, 4096, 3, (14.957, 14.957, 59.828),
         {1024: 4.25, 4096: 17.0, 16384: 68.0, 65536: 272.0, 131072: 544.0}),
        ("20", "1B", LLAMA_1B, 16, 2048, 4, (2.3018, 2.3018, 9.207), {1024: 1.0625, 16384: 17.0}),
    ):  # fmt: skip
        row = _plan(numel, replace(recipe, optimizer=recipe.optimizer[1:]), 1, Layout.DDP)
        yield Published(
            key=key, config=f"Llama {name}, 1 GPU", source="Ultra-Scale Playbook, figure data",
            numbers=(
                _n("parameters", sizes[0], row.param_bytes, "GiB", digits),
                _n("gradients", sizes[1], row.grad_bytes, "GiB", digits),
                _n("optimizer", sizes[2], row.optimizer_bytes, "GiB", 3),
                *(
                    _n(f"activations, s {seq:,}", size, activation_bytes(Transformer(layers=layers, hidden=hidden, seq=seq)),
                       "GiB", 4)
                    for seq, size in acts.items()
                ),
            ),
        )  # fmt: skip
    yield from _cookbook()


def _cookbook() -> Iterator[Published]:
    numel = _cookbook_params(layers=32, hidden=4096, seq=2048, vocab=51_200, ffn=4.0)
    sizes = Transformer(layers=32, hidden=4096, seq=2048, batch=8, tensor_parallel=2)
    # Its ZeRO divides by all GPUs, its gradients (4 bytes) by none, not even by the tensor parallel ones.
    yield Published(
        key="22", config="6.9B, 128 GPUs, TP 2, ZeRO-1, batch 8", source="EleutherAI cookbook, calc_transformer_mem.py",
        numbers=(
            _n("parameters", 6.87, numel), _n("activations", 34.0, activation_bytes(sizes), "GiB"),
            _n("model", 6.40, 2 * numel / 2, "GiB"), _n("gradients, not divided", 25.60, 4 * numel, "GiB"),
            _n("optimizer", 0.60, _plan(numel, "mixed-adamw", 128, Layout.ZERO1).optimizer_bytes, "GiB"),
            _n("its all-gather bucket", 0.93, 2 * _COOKBOOK_BUCKET, "GiB"),
        ),
    )  # fmt: skip
    cookbook = replace(find_recipe("mixed-adamw"), grad_bytes=4)
    big = _cookbook_params(layers=44, hidden=6144, seq=2048, vocab=51_200, ffn=4.0)
    llama = _cookbook_params(layers=32, hidden=4096, seq=4096, vocab=51_200, ffn=3.5)
    scores = Transformer(layers=32, hidden=4096, seq=4096, heads=32, is_fused=False)
    whole = _plan(big, cookbook, 1, Layout.ZERO1).states_bytes + activation_bytes(
        Transformer(layers=44, hidden=6144, seq=2048)
    )
    yield Published(
        key="23", config="20B, and Llama-7B at s 4096, 1 GPU", source="EleutherAI cookbook, calc_transformer_mem.py",
        numbers=(
            _n("20B", 362.45, whole, "GiB"), _n("7B activations", 97.0, activation_bytes(scores), "GiB"),
            _n("7B", 203.33, _plan(llama, cookbook, 1, Layout.ZERO1).states_bytes + activation_bytes(scores), "GiB"),
        ),
    )  # fmt: skip


def _cookbook_params(*, layers: int, hidden: int, seq: int, vocab: int, ffn: float) -> int:
    """As the cookbook counts: two embeddings, positions, norms, attention, two linear layers."""
    norms = 8 * hidden * layers + 2 * hidden
    blocks = 4 * layers * hidden * hidden + int(2 * layers * hidden * ffn * hidden)
    return 2 * vocab * hidden + hidden * seq + norms + blocks


def _courses() -> Iterator[Published]:
    def mixed(layout: Layout) -> PlanRow:
        return _plan(13_000_000_000, "mixed-adamw", 8, layout)

    yield Published(
        key="S1", config="13B, mixed AdamW, DDP", source="course text",
        numbers=(_n("26 + 26 + 52 + 52 + 52", 208.0, mixed(Layout.DDP).states_bytes, digits=0),),
    )  # fmt: skip
    yield Published(
        key="S2", config="the same, 8 ranks (the text prints 43.2 for ZeRO-2: its own formula gives 48.75)",
        source="course text",
        numbers=(
            _n("ZeRO-1", 71.5, mixed(Layout.ZERO1).states_bytes), _n("ZeRO-2", 48.75, mixed(Layout.ZERO2).states_bytes),
            _n("ZeRO-3", 26.0, mixed(Layout.FSDP).states_bytes),
        ),
    )  # fmt: skip
    seven, large = (_plan(p, "fp32", 1, Layout.DDP).states_bytes for p in (7 * 10**9, 175 * 10**9))
    yield Published(
        key="S3", config="7B and 175B, fp32 AdamW", source="course text",
        numbers=(_n("7B", 112.0, seven, digits=0), _n("175B", 2800.0, large, digits=0),
                 _n("GPUs of 40 GB", 70.0, large / (40 * GB) * 1.0, "ratio", 0)),
    )  # fmt: skip
    ddp, fsdp, kept = (mixed(x).traffic_bytes or 0 for x in (Layout.DDP, Layout.FSDP, Layout.FSDP_NO_RESHARD))
    yield Published(
        key="S4", config="traffic of a step, 13B, 8 ranks", source="course text",
        numbers=(
            _n("DDP, elements", 22_750_000_000.0, ddp / 2, "elements", 0),
            _n("FSDP, elements", 34_125_000_000.0, fsdp / 2, "elements", 0),
            _n("FSDP / DDP", 1.5, fsdp / ddp, "ratio"), _n("not resharded / DDP", 1.0, kept / ddp, "ratio"),
        ),
    )  # fmt: skip
    jump = _plan(LLAMA_31_8B, "fsdp2-mixed", 8, Layout.FSDP).optimizer_bytes
    yield Published(
        key="D1", config="Llama3-8B, 8 GPUs: step 1 to 2", source="torchtitan issue 929, pytorch 132445",
        numbers=(_n("AdamW's states are born", 7.48, jump, "GiB"),),
    )  # fmt: skip
    pure = _plan(70_000_000_000, "bf16-pure", 1, Layout.DDP)
    yield Published(
        key="D21", config="70B, full bf16", source="torchtune issue 863, put right",
        numbers=(
            _n("parameters", 140.0, pure.param_bytes, digits=0), _n("parameters", 130.4, pure.param_bytes, "GiB", 1),
            _n("gradients", 140.0, pure.grad_bytes, digits=0), _n("AdamW", 280.0, pure.optimizer_bytes, digits=0),
        ),
    )  # fmt: skip


def _estimates() -> Iterator[Published]:
    allocator = "reserved, not allocated: the caching allocator; NCCL"
    llama = Transformer(layers=32, hidden=4096, seq=8192, batch=2, vocab=128_256)

    def titan(ranks: int, sizes: Transformer = llama, ac: Checkpointing = Checkpointing.SELECTIVE) -> float | None:
        options = Options(checkpointing=ac)
        return _plan(LLAMA_31_8B, "fsdp2-mixed", ranks, Layout.FSDP, transformer=sizes, options=options).peak_bytes

    yield Published(
        key="9", config="Llama 3.1 8B, 8 H100, FSDP, batch 2, selective AC", source="torchtitan, llama3_h100_202412",
        is_states=False, left_out=f"which operators selective AC keeps (every second matmul); {allocator}; compile, fp8",
        numbers=(_n("eager", 82.4, titan(8), "GiB", 1), _n("compile", 77.0, titan(8), "GiB", 1)),
    )  # fmt: skip
    yield Published(
        key="10", config="the same, 128 GPUs", source="torchtitan, llama3_h100_202412", is_states=False,
        left_out="as above", numbers=(_n("eager", 67.0, titan(128), "GiB", 1), _n("compile", 62.0, titan(128), "GiB", 1)),
    )  # fmt: skip
    big = Transformer(layers=80, hidden=8192, seq=8192, batch=16, vocab=128_256, tensor_parallel=8)
    full = Options(checkpointing=Checkpointing.FULL)
    # 256 ranks share the states (32 x 8); a tensor-parallel rank gathers an eighth of a unit.
    seventy = _plan(LLAMA_70B, "fsdp2-mixed", 256, Layout.FSDP, transformer=big, options=full,
                    unit_numel=LLAMA_70B // 80 // 8)  # fmt: skip
    yield Published(
        key="12", config="Llama 3.1 70B, 256 GPUs (FSDP 32 x TP 8), batch 16, full AC",
        source="torchtitan, llama3_h100_202412", is_states=False,
        left_out=f"tensor parallel buffers; {allocator}", numbers=(_n("eager", 71.9, seventy.peak_bytes, "GiB", 1),),
    )  # fmt: skip
    yield Published(
        key="14", config="405B, 4-D parallel, 32k to 256k", source="torchtitan, llama3_h100_202412", is_states=False,
        left_out="pipeline and context parallelism: no value",
        numbers=(_n("32k", 75.3, None, "GiB", 1), _n("256k", 84.9, None, "GiB", 1)),
    )  # fmt: skip
    yield Published(
        key="15", config="8B, 32 and 64 H200, fp8, batch 2", source="torchtitan, llama3-8b_h200_202506", is_states=False,
        left_out=f"fp8 and compile keep less; {allocator}",
        numbers=(_n("32 GPUs", 47.96, titan(32), "GiB"), _n("64 GPUs", 46.97, titan(64), "GiB")),
    )  # fmt: skip
    yield Published(
        key="16", config="Llama-7B, 8 H100, FSDP1 against FSDP2", source="torchtitan, docs/fsdp.md", is_states=False,
        left_out="record_stream and the allocator, which make the difference: no value",
        numbers=(_n("lower by", 0.07, None, "ratio"),),
    )  # fmt: skip
    yield Published(
        key="17", config="Llama3-8B, 8 H100, no AC, batch 1", source="pytorch 129721, 132445", is_states=False,
        left_out=allocator,
        numbers=(_n("step 2 on", 77.29, titan(8, replace(llama, batch=1), Checkpointing.NONE), "GiB"),),
    )  # fmt: skip
    yield from _finetuning()


def _finetuning() -> Iterator[Published]:
    sizes = Transformer(layers=28, hidden=3072, seq=4096, batch=2, vocab=128_256)

    def tune(recipe: str, ac: Checkpointing, *, logits: bool = True) -> float | None:
        model = replace(sizes, vocab=sizes.vocab if logits else None)
        recipe_ = replace(find_recipe(recipe), bucket_bytes=0)
        options = Options(checkpointing=ac)
        return _plan(LLAMA_32_3B, recipe_, 1, Layout.DDP, transformer=model, options=options).peak_bytes

    yield Published(
        key="25", config="Llama 3.2 3B, bf16, A100, batch 2, s 4096", source="torchtune README", is_states=False,
        left_out="grouped-query attention and SwiGLU (34 s b h L is GPT's); offloading; fused optimizer step",
        numbers=(
            _n("packed", 60.0, tune("bf16-pure", Checkpointing.NONE), "GiB", 1),
            _n("+ chunked loss", 42.9, tune("bf16-pure", Checkpointing.NONE, logits=False), "GiB", 1),
            _n("+ checkpointing", 24.9, tune("bf16-pure", Checkpointing.FULL, logits=False), "GiB", 1),
            _n("+ 8-bit AdamW", 17.6, tune("adam-8bit", Checkpointing.FULL, logits=False), "GiB", 1),
        ),
    )  # fmt: skip
    llama2 = Transformer(layers=32, hidden=4096, seq=2048, vocab=32_000)

    def qlora(
        numel: int, ranks: int, transformer: Transformer, layout: Layout = Layout.FSDP, name: str = "qlora"
    ) -> float:
        options = Options(checkpointing=Checkpointing.FULL)
        row = _plan(numel, name, ranks, layout, trainable_numel=0, transformer=transformer, options=options)
        return row.peak_bytes or 0

    yield Published(
        key="26", config="Llama-2 7B, 2 x 3090, s 2048", source="fsdp_qlora, benchmarks_03_2024", is_states=False,
        left_out="adapters (their rank is not told), dequantised weights, embeddings that stay bf16",
        numbers=(
            _n("QLoRA, batch 1", 5.21, qlora(LLAMA2_7B, 2, llama2), "GiB"),
            _n("QLoRA, batch 10", 20.97, qlora(LLAMA2_7B, 2, replace(llama2, batch=10)), "GiB"),
            _n("LoRA, batch 1", 10.22, qlora(LLAMA2_7B, 2, llama2, name="lora"), "GiB"),
            _n("QLoRA under DDP, batch 8", 20.94, qlora(LLAMA2_7B, 2, replace(llama2, batch=8), Layout.DDP), "GiB"),
        ),
    )  # fmt: skip
    wrapped = _plan(LLAMA2_7B, "qlora", 2, Layout.FSDP, trainable_numel=0).states_bytes
    yield Published(
        key="27", config="Llama-2 7B QLoRA after wrapping, 2 GPUs", source="fsdp_qlora, benchmarks_03_2024",
        is_states=False, left_out="embeddings and head that stay bf16, buffers of wrapping",
        numbers=(_n("on a napkin", 1.75, wrapped, "GB"), _n("measured", 3.72, wrapped, "GiB")),
    )  # fmt: skip
    yi = Transformer(layers=60, hidden=7168, seq=2048, batch=2, vocab=64_000)
    yield Published(
        key="28", config="Yi-34B QLoRA, batch 2, 2 x 3090", source="fsdp_qlora, benchmarks_03_2024", is_states=False,
        left_out="as in 26; offloading (its other numbers: no value)",
        numbers=(_n("on GPU", 23.05, qlora(34_388_917_248, 2, yi), "GiB"), _n("offloaded", 22.98, None, "GiB"),
                 _n("70B, offloaded", 14.92, None, "GiB")),
    )  # fmt: skip
    yield Published(
        key="30", config="MNIST net, 4 GPUs, FSDP1", source="pytorch tutorials", is_states=False,
        left_out="convolutions' activations and cuDNN's workspace: no value; simulate the script instead",
        numbers=(_n("one unit, MB", 0.075, None, "GB", 3), _n("wrapped, MB", 0.066, None, "GB", 3)),
    )  # fmt: skip


def table() -> str:
    """The rows as Markdown: exact ones first."""
    lines = [
        "| # | configuration | number | published | planner | error | source |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    lines += [_line(row, number) for row in rows() for number in row.numbers]
    left = ["", "What is not modelled:", ""]
    left += [f"- {row.key}: {row.left_out}" for row in rows() if row.left_out]
    return "\n".join([*lines, *left])


def _line(row: Published, number: Number) -> str:
    def text(value: float | None) -> str:
        if value is None:
            return "no value"
        return f"{value:,.{number.digits}f}" + ("" if number.unit in ("ratio", "elements") else f" {number.unit}")

    error = "exact" if number.is_exact else "" if number.error_ratio is None else f"{number.error_ratio * 100:+.0f} %"
    cells = (row.key, row.config, number.what, text(number.published), text(number.ours), error, row.source)
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
