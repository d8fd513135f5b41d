"""Assign allocations to categories and units: by tag, else by region, else by lifetime.

[Note: How a block gets its category]
1. TAG: a hook named its storage while it was alive. A tag counts back to the alloc; a later tag with another
   category begins a new part of the block. Any other tag overrides a weak one (a parameter as the script built it).
2. REGION: allocated under a communication operator, or inside a unit's gather, copy-out or reduction.
3. LIFETIME: by the phase of its alloc and of its free. Allocated in forward and alive after it: ACTIVATION, also
   in a recomputation during backward (named RECOMPUTED). Born and dead in one phase: TEMPORARY. Made between steps
   (or last in set-up) and alive in the forward that follows: INPUT.
4. Otherwise UNKNOWN.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fsdp_profile.core.capture_log import BUCKET_REGION, GATHER_REGION, RECOMPUTE_REGION
from fsdp_profile.core.categories import CATEGORIES, FORMER_CODES, Category
from fsdp_profile.core.schema import (
    NO_UNIT,
    NOT_FREED,
    SETUP_STEP,
    TEARDOWN_STEP,
    Basis,
    Phase,
    SpanKind,
)
from fsdp_profile.ingest.rank.capture_log import CaptureLog, Columns
from fsdp_profile.ingest.rank.nesting import innermost
from fsdp_profile.ingest.rank.pairing import Blocks
from fsdp_profile.ingest.snapshot.frames import WORKSPACE_OPERATOR

Array = np.ndarray[Any, Any]

_CODE = {category: code for code, category in enumerate(CATEGORIES)}
_BASES = tuple(Basis)
_BASIS = {basis: code for code, basis in enumerate(_BASES)}

RECOMPUTED = "recomputed"
"""Name of an activation that a checkpoint made again in backward."""

FUNCTIONAL = "_c10d_functional::"
"""Prefix of functional collectives, which allocate what they return."""

CUBLAS_WORKSPACE_BYTES = (4096 * 1024 * 2 + 16 * 1024 * 8, 4096 * 1024 * 8)
"""CUBLAS_WORKSPACE_CONFIG :4096:2:16:8, PyTorch's default, and :4096:8, its default on Hopper."""

_FORWARD_REGIONS = (SpanKind.FORWARD.value, RECOMPUTE_REGION)
_REGION_CATEGORY = {
    SpanKind.ALL_GATHER.value: Category.ALL_GATHER,
    SpanKind.COPY_OUT.value: Category.ALL_GATHER,
    GATHER_REGION: Category.ALL_GATHER,
    SpanKind.REDUCE.value: Category.REDUCE_SCATTER,
    BUCKET_REGION: Category.BUCKET,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """One row per block and category it had; `block` is the row of the block."""

    block: Array
    start_ns: Array
    end_ns: Array
    category: Array
    """Index into schema.CATEGORIES."""
    basis: Array
    """Index into tuple(Basis)."""
    unit: Array
    name: Array
    """Code into the log's words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Phases and steps as functions of time."""

    phase_start_ns: Array
    phases: list[str]
    step_end_ns: Array
    first_forward_ns: int | None

    @property
    def has_open_step(self) -> bool:
        """Whether a forward began after the last step's end: a step that was cut off, or an evaluation."""
        last = self.step_end_ns[-1] if len(self.step_end_ns) else 0
        return any(
            phase in _FORWARDS and start > last
            for start, phase in zip(self.phase_start_ns.tolist(), self.phases, strict=True)
        )

    def phase_index(self, t_ns: Array) -> Array:
        """The phase's number at each time; 0 also before the first."""
        return np.maximum(np.searchsorted(self.phase_start_ns, t_ns, side="right") - 1, 0)

    def phase_names(self, index: Array) -> Array:
        """Phase words of phase numbers."""
        return np.array([*self.phases, ""], object)[index]

    def steps(self, t_ns: Array) -> Array:
        """The step at each time: SETUP_STEP before the first forward, TEARDOWN_STEP when no forward follows."""
        step = np.searchsorted(self.step_end_ns, t_ns, side="left")
        if not self.has_open_step:
            step = np.where(step == len(self.step_end_ns), TEARDOWN_STEP, step)
        if self.first_forward_ns is None:
            return np.full(len(step), SETUP_STEP, np.int64) if len(self.step_end_ns) == 0 else step
        return np.where(t_ns < self.first_forward_ns, SETUP_STEP, step)


_FORWARDS = (Phase.FORWARD.value, Phase.EVALUATION.value)


def make_clock(log: CaptureLog) -> Clock:
    """The clock of a rank; a rank without phases is in SETUP throughout."""
    vocabulary = log.strings.texts
    starts = log.phases["t_ns"]
    phases = [vocabulary[code] for code in log.phases["phase"]]
    if len(starts) == 0:
        starts, phases = np.array([int(log.rank.get("start_ns", 0))], np.int64), [Phase.SETUP.value]
    return Clock(phase_start_ns=starts, phases=phases, step_end_ns=log.step_ends, first_forward_ns=log.first_forward_ns)


def attribute(log: CaptureLog, blocks: Blocks, clock: Clock, transport_end_ns: Array) -> Parts:
    """The parts of every block; see [Note: How a block gets its category]."""
    tagged = _tag_parts(log.tags, blocks, log.strings.texts, made_in_forward=_born_in_forward(blocks, clock))
    is_tagged = np.zeros(len(blocks.address), bool)
    is_tagged[tagged.block] = True
    rest = _rest_parts(log, blocks, clock, np.flatnonzero(~is_tagged))
    both = {name: np.concatenate([getattr(tagged, name), getattr(rest, name)]) for name in Parts.__dataclass_fields__}
    order = np.lexsort((both["start_ns"], both["block"]))
    return Parts(**{name: values[order] for name, values in both.items()})


def tag_owners(tags: Columns, blocks: Blocks) -> Array:
    """For each tag the row of the block alive at its address and time; -1 when none."""
    num_blocks, num_tags = len(blocks.address), len(tags["t_ns"])
    address = np.concatenate([blocks.address, tags["address"]])
    t_ns = np.concatenate([blocks.start_ns, tags["t_ns"]])
    is_tag = np.arange(num_blocks + num_tags) >= num_blocks
    order = np.lexsort((is_tag, t_ns, address))
    # Going through an address in time, the last block seen before a tag is the candidate.
    position = np.where(is_tag[order], -1, np.arange(len(order)))
    latest = np.maximum.accumulate(position) if len(order) else position
    found = np.full(num_tags, -1, np.int64)
    rows = np.flatnonzero(is_tag[order])
    candidates = latest[rows]
    has_one = candidates >= 0
    block = order[candidates[has_one]]
    tag = order[rows[has_one]] - num_blocks
    fits = (blocks.address[block] == tags["address"][tag]) & (blocks.end_ns[block] > tags["t_ns"][tag])
    found[tag[fits]] = block[fits]
    return found


def _born_in_forward(blocks: Blocks, clock: Clock) -> Array:
    return np.isin(clock.phase_names(clock.phase_index(blocks.start_ns)).astype(str), _FORWARDS)


def _tag_parts(tags: Columns, blocks: Blocks, vocabulary: list[str], *, made_in_forward: Array) -> Parts:
    owner = tag_owners(tags, blocks)
    # What a forward made and another root is given (blocks without a common root) is an activation, not the batch.
    is_input = np.array([word == Category.INPUT.value for word in vocabulary])[tags["category"]]
    keep = (owner >= 0) & ~(is_input & made_in_forward[owner] if len(made_in_forward) else is_input)
    strong = np.zeros(len(blocks.address), bool)
    strong[owner[keep & ~tags["weak"]]] = True
    keep &= ~(tags["weak"] & strong[owner])
    rows = np.flatnonzero(keep)
    rows = rows[np.lexsort((tags["t_ns"][rows], owner[rows]))]
    known = {category.value: code for category, code in _CODE.items()}
    known |= {former: _CODE[category] for former, category in FORMER_CODES.items()}
    code_of_word = np.array([known.get(word, _CODE[Category.UNKNOWN]) for word in vocabulary])
    block, category = owner[rows], code_of_word[tags["category"][rows]]
    is_new_block = np.ones(len(rows), bool)
    is_new_block[1:] = block[1:] != block[:-1]
    is_change = is_new_block.copy()
    is_change[1:] |= category[1:] != category[:-1]
    first = np.flatnonzero(is_change)
    block, category, is_new = block[first], category[first], is_new_block[first]
    tag = rows[first]
    start = np.where(is_new, blocks.start_ns[block], tags["t_ns"][tag])
    # Of the tags of one part the first knows the category; any may know the unit and the name.
    unit = np.maximum.reduceat(tags["unit"][rows], first) if len(first) else np.zeros(0, np.int64)
    name = np.maximum.reduceat(tags["name"][rows], first) if len(first) else np.zeros(0, np.int64)
    end = blocks.end_ns[block].copy()
    goes_on = np.flatnonzero(~is_new)
    end[goes_on - 1] = start[goes_on]
    return Parts(
        block=block,
        start_ns=start,
        end_ns=end,
        category=category,
        basis=np.full(len(block), _BASIS[Basis.TAG], np.int64),
        unit=unit,
        name=name.astype(np.int64),
    )


def _rest_parts(log: CaptureLog, blocks: Blocks, clock: Clock, rows: Array) -> Parts:
    start, end = blocks.start_ns[rows], blocks.end_ns[rows]
    region, unit = _regions(log.spans, log.strings.texts, start)
    category = np.full(len(rows), _CODE[Category.UNKNOWN], np.int64)
    basis = np.full(len(rows), _BASIS[Basis.NONE], np.int64)

    def decide(mask: Array, what: Category, how: Basis) -> None:
        free = mask & (basis == _BASIS[Basis.NONE])
        category[free], basis[free] = _CODE[what], _BASIS[how]

    for word, what in _REGION_CATEGORY.items():
        decide(region == word, what, Basis.REGION)
    born = clock.phase_index(start)
    died = np.where(end == NOT_FREED, len(clock.phases), clock.phase_index(end))
    phase = clock.phase_names(born)
    following = clock.phase_names(np.minimum(born + 1, len(clock.phases)))
    is_short = died == born
    in_backward = phase == Phase.BACKWARD.value
    carried = (blocks.transport[rows] >= 0) & ~_is_functional(blocks.operator[rows], log.strings.texts)
    decide(carried & in_backward, Category.BUCKET, Basis.REGION)
    recomputed = in_backward & np.isin(region.astype(str), _FORWARD_REGIONS)
    recomputed &= end > _recomputed_until(log.spans, log.strings.texts, start)
    unit = np.where(recomputed & (unit == NO_UNIT), _unit_in_backward(log.spans, log.strings.texts, start), unit)
    decide(_is_workspace(log, blocks, rows, clock), Category.WORKSPACE, Basis.LIFETIME)
    in_forward = np.isin(phase.astype(str), _FORWARDS)
    decide(in_forward & is_short, Category.TEMPORARY, Basis.LIFETIME)
    decide(in_forward, Category.ACTIVATION, Basis.LIFETIME)
    decide(recomputed, Category.ACTIVATION, Basis.LIFETIME)
    decide((phase == Phase.OPTIMIZER.value) & is_short, Category.OPTIMIZER_TEMPORARY, Basis.LIFETIME)
    decide(is_short, Category.TEMPORARY, Basis.LIFETIME)
    # Made between steps: a batch lives through the forward that follows, and dies at the latest with the next batch.
    step_born, step_died = clock.steps(start), clock.steps(np.where(end == NOT_FREED, 0, end))
    step_died = np.where(step_died == TEARDOWN_STEP, len(clock.step_end_ns), step_died)
    dies_soon = (end != NOT_FREED) & (step_died <= np.maximum(step_born, 0) + 1)
    is_last_step = np.maximum(step_born, 0) + 1 >= len(clock.step_end_ns)
    feeds = np.isin(phase.astype(str), [Phase.OTHER.value, Phase.SETUP.value]) & np.isin(
        following.astype(str), _FORWARDS
    )
    decide(feeds & (dies_soon | ((end == NOT_FREED) & is_last_step)), Category.INPUT, Basis.LIFETIME)
    # Clipping and logging leave scalars behind that live until the same place of the next step.
    decide(phase == Phase.CHECKPOINT.value, Category.TEMPORARY, Basis.LIFETIME)
    decide((phase == Phase.OTHER.value) & dies_soon, Category.TEMPORARY, Basis.LIFETIME)
    return Parts(
        block=rows,
        start_ns=start,
        end_ns=end,
        category=category,
        basis=basis,
        unit=unit,
        name=np.where(recomputed & (category == _CODE[Category.ACTIVATION]), log.strings.code(RECOMPUTED), 0),
    )


def _is_workspace(log: CaptureLog, blocks: Blocks, rows: Array, clock: Clock) -> Array:
    """Which blocks are workspaces of a CUDA library.

    Either the stack says so, or the block has exactly the size that PyTorch gives cuBLAS's workspaces
    (`parseChosenWorkspaceSize` in aten/src/ATen/cuda/CublasHandlePool.cpp), was allocated while the model ran, and
    outlived the step in which it was: cuBLAS keeps its workspaces to the end, activations do not live so long.
    """
    by_stack: Array = np.array([word == WORKSPACE_OPERATOR for word in log.strings.texts], bool)[blocks.operator[rows]]
    start = blocks.start_ns[rows]
    in_model = np.isin(clock.phase_names(clock.phase_index(start)).astype(str), [*_FORWARDS, Phase.BACKWARD.value])
    is_kept = (blocks.end_ns[rows] == NOT_FREED) & (clock.steps(start) < len(clock.step_end_ns) - 1)
    if not log.cuda:
        return by_stack
    found: Array = by_stack | (np.isin(blocks.size_bytes[rows], CUBLAS_WORKSPACE_BYTES) & in_model & is_kept)
    return found


def _is_functional(operator: Array, vocabulary: list[str]) -> Array:
    is_word = np.array([word.startswith(FUNCTIONAL) for word in vocabulary], bool)
    found: Array = is_word[operator]
    return found


def _recomputed_until(spans: Columns, vocabulary: list[str], t_ns: Array) -> Array:
    """The end of the outermost forward around each time; 0 where there is none."""
    start, end, _ = _of_kinds(spans, vocabulary, _FORWARD_REGIONS)
    if len(start) == 0:
        return np.zeros(len(t_ns), np.int64)
    # Spans nest: one that begins after all before it are over is an outermost one.
    latest_end = np.maximum.accumulate(end)
    is_outermost = np.append(True, start[1:] >= latest_end[:-1])
    top = np.flatnonzero(is_outermost)[np.maximum(is_outermost.cumsum() - 1, 0)]
    found = np.searchsorted(start, t_ns, side="right") - 1
    until = end[top[np.maximum(found, 0)]]
    inside: Array = np.where((found >= 0) & (until > t_ns), until, 0)
    return inside


def _unit_in_backward(spans: Columns, vocabulary: list[str], t_ns: Array) -> Array:
    """The unit whose backward is running at each time: of several the one that began last, NO_UNIT if none."""
    start, end, unit = _of_kinds(spans, vocabulary, (SpanKind.BACKWARD.value,))
    found = np.full(len(t_ns), NO_UNIT, np.int64)
    for first, last, number in zip(start, end, unit, strict=True):
        found[(t_ns >= first) & (t_ns < last)] = number
    return found


def _of_kinds(spans: Columns, vocabulary: list[str], kinds: tuple[str, ...]) -> tuple[Array, Array, Array]:
    """Start, end and unit of the spans of some kinds, by start; of those that begin together the longest first."""
    is_kind = np.array([word in kinds for word in vocabulary], bool)
    rows = np.flatnonzero(is_kind[spans["kind"]])
    rows = rows[np.lexsort((-spans["end_ns"][rows], spans["start_ns"][rows]))]
    return spans["start_ns"][rows], spans["end_ns"][rows], spans["unit"][rows]


def _regions(spans: Columns, vocabulary: list[str], t_ns: Array) -> tuple[Array, Array]:
    """Kind and unit of the innermost span around each time; '' and NO_UNIT where there is none."""
    kinds = np.array([*vocabulary, ""], object)
    keep = np.isin(kinds[spans["kind"]].astype(str), [*_REGION_CATEGORY, *_FORWARD_REGIONS])
    rows = np.flatnonzero(keep)
    found = innermost(spans["start_ns"][rows], spans["end_ns"][rows], t_ns)
    kind = np.where(found >= 0, kinds[spans["kind"][rows[found]]] if len(rows) else "", "")
    unit = np.where(found >= 0, spans["unit"][rows[found]] if len(rows) else NO_UNIT, NO_UNIT)
    return kind.astype(object), unit.astype(np.int64)
