"""Options of `fsdp-profile plan`, and what they say, checked."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdp_profile.core.errors import UsageError

if TYPE_CHECKING:
    from fsdp_profile.plan.formulas.costs import ModelSize, Options, PlanRow
    from fsdp_profile.plan.formulas.devices import Device
    from fsdp_profile.plan.formulas.strategies import Layout, World

_ANY_DEVICE_BYTES = 1 << 30
_SEARCHES = ("gpus", "batch")


_FORMULAS = frozenset(
    {"recipe", "trainable", "largest_unit", "depth", "bucket_view", "layers", "hidden", "heads", "vocab", "seq",
     "batch", "ac", "no_flash"}
)  # fmt: skip
"""What only formulas look at (`--ac`: the replay of a run, too)."""
_REPLAY = frozenset({"ac", "batch_ratio", "seq_ratio", "grad_bytes", "accumulate"})
_VERIFY = frozenset({"verify", "verify_run"})
_SIMULATION = frozenset({"real", "steps", "output"})


def add_general(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--world-size", metavar="N[,N]", default=None, help="ranks (default: 8, or those of the run)")
    parser.add_argument(
        "--as", dest="layouts", metavar="STRATEGY", action="append", default=[],
        help="ddp, zero1, zero2, fsdp, fsdp-no-reshard, hsdp or hsdp:K (shards over K ranks); repeatable",
    )  # fmt: skip
    parser.add_argument("--replicas", type=int, default=None, metavar="M", help="HSDP's groups of shards (default: 2)")
    parser.add_argument(
        "--device", dest="devices", metavar="NAME|SIZE", action="append", default=[],
        help="a device to fit, such as h100 or 48GiB; repeatable",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output, nothing else")
    parser.add_argument("--explain", action="store_true", help="each formula with its numbers and its source")
    parser.add_argument("--search", choices=_SEARCHES, help="the fewest GPUs, or the largest batch, that fit --device")
    parser.add_argument("--real", action="store_true", help="simulate with real tensors: one rank's exact memory")
    parser.add_argument("--steps", type=int, default=2, metavar="N", help="steps to simulate (default: 2)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="keep the simulated run (one folder a strategy)"
    )


def add_formula(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("formulas")
    group.add_argument("--params", metavar="P", help="parameters of the model: 13e9, 13B, 350M")
    group.add_argument("--recipe", default=None, help="dtypes and optimizer, such as mixed-adamw (the default) or fp32")
    group.add_argument("--trainable", metavar="T", help="parameters that are trained (LoRA)")
    group.add_argument("--largest-unit", metavar="U", help="parameters of the largest unit (default: P / layers)")
    group.add_argument("--depth", type=int, default=2, metavar="D", help="units gathered at once (default: 2)")
    group.add_argument("--bucket-view", action="store_true", help="DDP's gradients are views into its buckets")
    for name, what in (("layers", "blocks"), ("hidden", "width"), ("heads", "attention heads"), ("vocab", "tokens"),
                       ("seq", "sequence length"), ("batch", "sequences of a micro-batch on one rank")):  # fmt: skip
        group.add_argument(f"--{name}", type=int, metavar="N", help=what)
    group.add_argument("--ac", choices=("none", "selective", "full"), default="none", help="activation checkpointing")
    group.add_argument("--no-flash", action="store_true", help="attention keeps its scores")


def add_measured(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("from a measured run")
    group.add_argument("--from", dest="source", type=Path, metavar="RUN", help="the run to start from")
    group.add_argument("--batch-ratio", type=float, default=1.0, metavar="X", help="batch, as a multiple of the run's")
    group.add_argument("--seq-ratio", type=float, default=1.0, metavar="X", help="sequence length, likewise")
    group.add_argument("--grad-bytes", type=int, choices=(2, 4), help="bytes of a gradient on its way")
    group.add_argument("--accumulate", action="store_true", help="several micro-batches to a step")
    group.add_argument("--verify", action="store_true", help="record the planned configuration here, print the error")
    group.add_argument("--verify-run", type=Path, metavar="RUN", help="compare the prediction with this recorded run")


def with_script_words(args: argparse.Namespace) -> argparse.Namespace:
    """Options of ours that stand behind the script are taken; all others, and what follows --, are the script's."""
    words = args.script_words
    if not words or words[0] == "--":
        args.script_words = words[1:]
        return args
    own, _, rest = words, None, []
    if "--" in words:
        at = words.index("--")
        own, rest = words[:at], words[at + 1 :]
    parser = _OneLine(prog="fsdp-profile plan", allow_abbrev=False, add_help=False)
    add_general(parser)
    add_formula(parser)
    add_measured(parser)
    _, unknown = parser.parse_known_args(own[1:], args)
    args.script_words = [own[0], *unknown, *rest]
    return args


def refuse_foreign(args: argparse.Namespace, script: Sequence[str]) -> None:
    """Refuse options that what is planned from (a run, a script, formulas) would not look at."""
    if args.source is not None and script:
        origin, foreign = "--from RUN with a script", _FORMULAS | _REPLAY
    elif args.source is not None:
        origin, foreign = "--from RUN", _FORMULAS - {"ac"}
    elif script:
        origin, foreign = "a script", _FORMULAS | _REPLAY | _VERIFY
    else:
        origin, foreign = "--params", (_REPLAY | _VERIFY | _SIMULATION) - {"ac"}
    parser = argparse.ArgumentParser(add_help=False)
    for add in (add_general, add_formula, add_measured):
        add(parser)
    for dest in sorted(foreign):
        if getattr(args, dest) != parser.get_default(dest):
            option = f"--{dest.replace('_', '-')}"
            way_out = f"; if it is the script's, put it behind --: {script[0]} -- {option}" if script else ""
            raise UsageError(f"{option}: not looked at with {origin}{way_out}")


class _OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; see fsdp-profile plan --help")


def target_for(args: argparse.Namespace, layout: Layout, world: World) -> Any:
    from fsdp_profile.plan.calibrate import Target
    from fsdp_profile.plan.formulas.activations import Checkpointing

    return Target(
        layout=layout, world=world, batch_ratio=args.batch_ratio, seq_ratio=args.seq_ratio,
        checkpointing=Checkpointing(args.ac), grad_bytes=args.grad_bytes, accumulates=args.accumulate,
    )  # fmt: skip


def _count(text: str | None, option: str) -> int | None:
    from fsdp_profile.core.humanize import count_of

    try:
        return None if text is None else count_of(text)
    except ValueError as e:
        raise UsageError(f"{option}: {e}") from e


def world_sizes(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--world-size {text}: give a number of ranks, 1 or more, or several as 8,16,32")
    return [int(word) for word in words]


def world_for(args: argparse.Namespace, size: int, like: World | None = None) -> World:
    """The ranks, and HSDP's replicas: as given, else as in a run, else two."""
    from fsdp_profile.plan.formulas.strategies import DEFAULT_REPLICAS, World

    default = like.replicas if like is not None and like.replicas > 1 else DEFAULT_REPLICAS
    shards = getattr(args, "shards", None)
    if shards is not None and size % shards:
        raise UsageError(f"--as hsdp:{shards}: {shards} does not divide --world-size {size}")
    if shards is not None:
        default = size // shards
        if args.replicas not in (None, default):
            raise UsageError(
                f"--replicas {args.replicas}: --as hsdp:{shards} on {size} ranks makes {default}; give one"
            )
    return World(size=size, replicas=default if args.replicas is None else args.replicas)


def layouts_for(args: argparse.Namespace) -> list[Layout]:
    """The strategies that --as names; `hsdp:K` sets the replicas too.

    Of a script or a run zero2 means what FSDP makes of it, parameters divided between steps and gathered through
    forward and backward; as a formula it is ZeRO's, parameters never divided.
    """
    from fsdp_profile.plan.formulas.strategies import Layout

    is_formula = args.params is not None
    known = {str(layout): layout for layout in Layout} | {"zero3": Layout.FSDP}
    if not is_formula:
        known["zero2"] = Layout.FSDP_NO_RESHARD
    found = []
    for text in args.layouts:
        name, _, shards = text.partition(":")
        if name not in known or (shards and (name != Layout.HSDP or not shards.isdecimal() or int(shards) < 1)):
            raise UsageError(f"--as {text}: not known; choose one of {', '.join(known)}, hsdp:K (shards over K ranks)")
        if shards:
            args.shards = int(shards)
        found.append(known[name])
    if len({text for text in args.layouts if text.startswith("hsdp")}) > 1:
        raise UsageError(
            f"--as {' --as '.join(args.layouts)}: one size of HSDP's shards at a time; plan each by itself"
        )
    return found


def possible(world: World) -> list[Layout]:
    """Every layout; HSDP where the ranks can be divided into replicas."""
    from fsdp_profile.plan.formulas.strategies import LAYOUTS, Layout

    return [layout for layout in LAYOUTS if layout is not Layout.HSDP or world.has_hsdp]


def devices_for(args: argparse.Namespace, rows: Sequence[PlanRow] = ()) -> list[Device]:
    """Those named; without a name some usual ones, unless the rows are so small that any will do."""
    from fsdp_profile.plan.formulas.devices import DEFAULT_DEVICES, find_device

    is_small = bool(rows) and max(row.needed_bytes for row in rows) < _ANY_DEVICE_BYTES
    return [find_device(name) for name in args.devices or (() if is_small else DEFAULT_DEVICES)]


def model_for(args: argparse.Namespace) -> ModelSize:
    from fsdp_profile.plan.formulas.activations import Transformer
    from fsdp_profile.plan.formulas.costs import ModelSize

    numel = _count(args.params, "--params")
    assert numel is not None
    transformer = None
    needed = (args.layers, args.hidden, args.seq)
    if all(value is not None for value in needed):
        transformer = Transformer(
            layers=args.layers, hidden=args.hidden, seq=args.seq, batch=1 if args.batch is None else args.batch,
            heads=args.heads, vocab=args.vocab, is_fused=not args.no_flash,
        )  # fmt: skip
    elif any(value is not None for value in (args.hidden, args.seq, args.batch)):
        raise UsageError("activations need --layers, --hidden and --seq together (and --vocab for the logits)")
    if args.recipe in ("lora", "qlora") and args.trainable is None:
        raise UsageError(f"--recipe {args.recipe} needs --trainable, the parameters of the adapters")
    unit = _count(args.largest_unit, "--largest-unit")
    if unit is None and args.layers is not None:
        if args.layers < 1:
            raise UsageError(f"--layers {args.layers}: give a whole number, 1 or more")
        unit = -(-numel // args.layers)
    return ModelSize(
        numel=numel, trainable_numel=_count(args.trainable, "--trainable"), unit_numel=unit, transformer=transformer
    )


def options_for(args: argparse.Namespace) -> Options:
    from fsdp_profile.plan.formulas.activations import Checkpointing
    from fsdp_profile.plan.formulas.costs import Options

    return Options(depth=args.depth, checkpointing=Checkpointing(args.ac), bucket_view=args.bucket_view)
