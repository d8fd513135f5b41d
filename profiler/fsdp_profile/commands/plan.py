"""What would it take: memory of a model under DDP, ZeRO, FSDP and HSDP, without the GPUs.

From formulas (--params 13e9), from a simulated step of a script (plan train.py --world-size 8),
or from a measured run (--from RUN). Arguments of the script follow after --. Nothing here is a
measurement: every row says what it rests on. With `--json` the plan is one JSON document: bytes
and ratios.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdp_profile.commands._opening import damage, open_run
from fsdp_profile.errors import UsageError

if TYPE_CHECKING:
    from fsdp_profile.plan.devices import Device
    from fsdp_profile.plan.formulas import ModelSize, Options, PlanRow
    from fsdp_profile.plan.search import Found
    from fsdp_profile.plan.simulate import Simulation
    from fsdp_profile.plan.strategies import Layout, World

_ANY_DEVICE_BYTES = 1 << 30
_SEARCHES = ("gpus", "batch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile plan`."""
    _add_general(parser)
    _add_formula(parser)
    _add_measured(parser)
    parser.add_argument(
        "script_words", metavar="train.py [-- ARGS]", nargs=argparse.REMAINDER, help="a script to simulate"
    )


def _add_general(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--world-size", metavar="N[,N]", default=None, help="ranks (default: 8, or those of the run)")
    parser.add_argument(
        "--as", dest="layouts", metavar="STRATEGY", action="append", default=[],
        help="ddp, zero1, zero2, fsdp, fsdp-no-reshard or hsdp; repeatable (default: all, or the script's own)",
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


def _add_formula(parser: argparse.ArgumentParser) -> None:
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


def _add_measured(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("from a measured run")
    group.add_argument("--from", dest="source", type=Path, metavar="RUN", help="the run to start from")
    group.add_argument("--batch-ratio", type=float, default=1.0, metavar="X", help="batch, as a multiple of the run's")
    group.add_argument("--seq-ratio", type=float, default=1.0, metavar="X", help="sequence length, likewise")
    group.add_argument("--grad-bytes", type=int, metavar="N", help="bytes of a gradient on its way: 2 or 4")
    group.add_argument("--accumulate", action="store_true", help="several micro-batches to a step")
    group.add_argument("--verify", type=Path, metavar="RUN", help="a run of the planned configuration: print the error")


def run(args: argparse.Namespace) -> int:
    """Plan; the exit code says nothing about whether it fits."""
    args = _with_script_words(args)
    script = [word for word in args.script_words if word]
    if sum(map(bool, (script, args.params))) > 1:
        raise UsageError("give a script, or --params, not both")
    if args.search and args.params is None:
        raise UsageError("--search needs --params: it tries many sizes, which only formulas can")
    if args.source is not None:
        return _from_run(args, script)
    if script:
        return _simulated(args, script)
    if args.params is not None:
        return _formulas(args)
    raise UsageError("give --params 13e9, a script to simulate, or --from RUN; see fsdp-profile plan --help")


def _with_script_words(args: argparse.Namespace) -> argparse.Namespace:
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
    _add_general(parser)
    _add_formula(parser)
    _add_measured(parser)
    _, unknown = parser.parse_known_args(own[1:], args)
    args.script_words = [own[0], *unknown, *rest]
    return args


class _OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; see fsdp-profile plan --help")


def _formulas(args: argparse.Namespace) -> int:
    from fsdp_profile.plan.formulas import plan_rows
    from fsdp_profile.plan.recipes import DEFAULT_RECIPE, find_recipe

    recipe = find_recipe(args.recipe or DEFAULT_RECIPE)
    model, options, devices = _model(args), _options(args), _devices(args)
    if args.search:
        return _search(args, model, options)
    rows: list[PlanRow] = []
    worlds = [_world(args, size) for size in _world_sizes(args.world_size or "8")]
    for world in worlds:
        layouts = _layouts(args.layouts) or _possible(world)
        rows += plan_rows(model, recipe, world, layouts=layouts, options=options)
    from fsdp_profile.report.plan import formula_title

    remarks = _unknowns(model, rows)
    title = formula_title(model, recipe, [world.size for world in worlds])
    _show(args, rows, devices, title=title, subtitle=recipe.what, remarks=remarks,
          model={"numel": model.numel, "trainable_numel": model.trained, "recipe": recipe.name})  # fmt: skip
    return 0


def _search(args: argparse.Namespace, model: ModelSize, options: Options) -> int:
    from fsdp_profile.plan.recipes import DEFAULT_RECIPE, find_recipe
    from fsdp_profile.plan.search import fewest_ranks, largest_batch
    from fsdp_profile.plan.strategies import LAYOUTS

    if len(args.devices) != 1:
        raise UsageError("--search: name the one device to fit, such as --device h100")
    (device,) = _devices(args)
    recipe = find_recipe(args.recipe or DEFAULT_RECIPE)
    sizes = _world_sizes(args.world_size or "8")
    world = _world(args, sizes[0])
    layouts = _layouts(args.layouts)
    if args.search == "gpus":
        found = fewest_ranks(
            model, recipe, device, layouts=layouts or LAYOUTS, options=options, replicas=world.replicas
        )
        what = "Fewest ranks"
    else:
        found = largest_batch(model, recipe, device, world=world, layouts=layouts or _possible(world), options=options)
        what = f"Largest batch on {world.size} ranks"
    if args.json:
        _print_json({"device": device.name, "search": args.search, "found": [_found(f, device) for f in found]})
        return 0
    from fsdp_profile.report.plan import formula_title, search_report
    from fsdp_profile.report.terminal import console

    ranks = [world.size] if args.search == "batch" else []
    title = f"{what} of {device.title}: {formula_title(model, recipe, ranks).removesuffix(',  ranks')}"
    console().print(search_report(found, title=title))
    return 0


def _simulated(args: argparse.Namespace, script: list[str]) -> int:
    from fsdp_profile.plan.simulate import simulated_row

    sizes = _world_sizes(args.world_size or "8")
    found = _simulations(args, script, [_world(args, size) for size in sizes], _layouts(args.layouts))
    rows = [simulated_row(one) for one in found]
    _show(args, rows, _devices(args, rows), title=_script_title(script, found[0]), subtitle="", remarks=_remarks(found),
          model=_model_of(found[0].run))  # fmt: skip
    return 0


def _simulations(
    args: argparse.Namespace, script: list[str], worlds: Sequence[World], layouts: Sequence[Layout]
) -> list[Simulation]:
    """One after the other: each is a process that keeps one core busy."""
    from fsdp_profile.plan.simulate import simulate

    found = []
    wanted: list[Layout | None] = [*layouts] or [None]
    for world in worlds:
        for layout in wanted:
            folder = args.output
            if folder is not None and len(worlds) * len(wanted) > 1:
                folder = folder / f"{layout or 'as-written'}-{world.size}ranks"
            found.append(
                simulate(
                    script, world=world, layout=layout, run_dir=folder, steps=args.steps, fake_tensors=not args.real
                )
            )
    return found


def _from_run(args: argparse.Namespace, script: list[str]) -> int:
    """By replay of the run, or with a script by its simulation, corrected by the run."""
    from fsdp_profile.plan.calibrate import calibrated, measured_row, predict
    from fsdp_profile.plan.measured import layout_of, world_of
    from fsdp_profile.plan.simulate import simulate

    source = open_run(args.source)
    with damage(source.path):
        measured, world = measured_row(source), world_of(source)
        worlds = [_world(args, size, world) for size in _world_sizes(args.world_size or str(world.size))]
        layouts = _layouts(args.layouts) or [layout_of(source)]
        if script:
            here = simulate(script, world=world, steps=args.steps)
            found = _simulations(args, script, worlds, layouts)
            rows = [calibrated(one, source=here, run=source) for one in found]
            remarks = _remarks(found)
        else:
            rows = predict(source, [_target(args, layout, each) for each in worlds for layout in layouts])
            remarks = []
    if args.verify is not None:
        return _verify(args, rows)
    _show(args, [measured, *rows], _devices(args, rows), title=f"From {source.name}: {source.manifest.strategy_detail}",
          subtitle="the first row was measured", remarks=remarks, model=_model_of(source))  # fmt: skip
    return 0


def _verify(args: argparse.Namespace, rows: Sequence[PlanRow]) -> int:
    from fsdp_profile.plan.calibrate import Verification, measured_row

    recorded = open_run(args.verify)
    with damage(recorded.path):
        measured = measured_row(recorded)
    match = [r for r in rows if (r.layout, r.world_size) == (measured.layout, measured.world_size)]
    if not match:
        planned = ", ".join(f"{r.layout} on {r.world_size}" for r in rows)
        raise UsageError(
            f"--verify {args.verify}: it is {measured.layout} on {measured.world_size} ranks, which was not planned "
            f"({planned}); give --as {measured.layout} --world-size {measured.world_size}"
        )
    found = Verification(predicted=match[0], measured=measured)
    if args.json:
        rows_json = [_row(found.predicted, []), _row(found.measured, [])]
        _print_json({"error_ratio": found.error_ratio, "rows": rows_json})
        return 0
    from fsdp_profile.report.plan import verification_report
    from fsdp_profile.report.terminal import console

    console().print(verification_report(found))
    return 0


def _target(args: argparse.Namespace, layout: Layout, world: World) -> Any:
    from fsdp_profile.plan.activations import Checkpointing
    from fsdp_profile.plan.calibrate import Target

    return Target(
        layout=layout, world=world, batch_ratio=args.batch_ratio, seq_ratio=args.seq_ratio,
        checkpointing=Checkpointing(args.ac), grad_bytes=args.grad_bytes, accumulates=args.accumulate,
    )  # fmt: skip


# What was given, checked.


def _count(text: str | None, option: str) -> int | None:
    from fsdp_profile.humanize import count_of

    try:
        return None if text is None else count_of(text)
    except ValueError as e:
        raise UsageError(f"{option}: {e}") from e


def _world_sizes(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--world-size {text}: give a number of ranks, 1 or more, or several as 8,16,32")
    return [int(word) for word in words]


def _world(args: argparse.Namespace, size: int, like: World | None = None) -> World:
    from fsdp_profile.plan.strategies import DEFAULT_REPLICAS, World

    default = like.replicas if like is not None and like.replicas > 1 else DEFAULT_REPLICAS
    return World(size=size, replicas=default if args.replicas is None else args.replicas)


def _layouts(names: Sequence[str]) -> list[Layout]:
    from fsdp_profile.plan.strategies import Layout

    known = {str(layout): layout for layout in Layout} | {"zero3": Layout.FSDP}
    for name in names:
        if name not in known:
            raise UsageError(f"--as {name}: not known; choose one of {', '.join(known)}")
    return [known[name] for name in names]


def _possible(world: World) -> list[Layout]:
    """Every layout; HSDP where the ranks can be divided into replicas."""
    from fsdp_profile.plan.strategies import LAYOUTS, Layout

    return [layout for layout in LAYOUTS if layout is not Layout.HSDP or world.has_hsdp]


def _devices(args: argparse.Namespace, rows: Sequence[PlanRow] = ()) -> list[Device]:
    """Those named; without a name some usual ones, unless the rows are so small that any will do."""
    from fsdp_profile.plan.devices import DEFAULT_DEVICES, find_device

    is_small = bool(rows) and max(row.needed_bytes for row in rows) < _ANY_DEVICE_BYTES
    return [find_device(name) for name in args.devices or (() if is_small else DEFAULT_DEVICES)]


def _model(args: argparse.Namespace) -> ModelSize:
    from fsdp_profile.plan.activations import Transformer
    from fsdp_profile.plan.formulas import ModelSize

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
    unit = _count(args.largest_unit, "--largest-unit")
    if unit is None and args.layers is not None:
        if args.layers < 1:
            raise UsageError(f"--layers {args.layers}: give a whole number, 1 or more")
        unit = -(-numel // args.layers)
    return ModelSize(
        numel=numel, trainable_numel=_count(args.trainable, "--trainable"), unit_numel=unit, transformer=transformer
    )


def _options(args: argparse.Namespace) -> Options:
    from fsdp_profile.plan.activations import Checkpointing
    from fsdp_profile.plan.formulas import Options

    return Options(depth=args.depth, checkpointing=Checkpointing(args.ac), bucket_view=args.bucket_view)


# What is shown.


def _show(
    args: argparse.Namespace, rows: Sequence[PlanRow], devices: Sequence[Device], *, title: str, subtitle: str,
    remarks: Sequence[str], model: dict[str, Any],
) -> None:  # fmt: skip
    if args.json:
        _print_json({"model": model, "rows": [_row(row, devices) for row in rows], "remarks": list(remarks)})
        return
    from fsdp_profile.report.plan import plan_report
    from fsdp_profile.report.terminal import console

    page = plan_report(rows, devices=devices, title=title, subtitle=subtitle, remarks=remarks, explain=args.explain)
    console().print(page)


def _print_json(document: dict[str, Any]) -> None:
    import json

    from fsdp_profile.schema import SCHEMA_VERSION

    print(json.dumps({"schema": SCHEMA_VERSION, **document}, indent=2, allow_nan=False))


def _row(row: PlanRow, devices: Sequence[Device]) -> dict[str, Any]:
    """One row of `plan --json`. Keys are stable."""
    return {
        "strategy": str(row.layout),
        "world_size": row.world_size,
        "param_bytes": row.param_bytes,
        "grad_bytes": row.grad_bytes,
        "optimizer_bytes": row.optimizer_bytes,
        "states_bytes": row.states_bytes,
        "gathered_bytes": row.gathered_bytes,
        "reduced_bytes": row.reduced_bytes,
        "activation_bytes": row.activation_bytes,
        "peak_bytes": row.peak_bytes,
        "traffic_bytes_per_step": row.traffic_bytes,
        "fits": {device.name: row.fits(device) for device in devices},
        "basis": str(row.basis),
        "error_ratio": row.error_ratio,
        "by_category": row.by_category,
    }


def _found(found: Found, device: Device) -> dict[str, Any]:
    return {
        "strategy": str(found.layout),
        "world_size": None if found.row is None else found.row.world_size,
        "batch": found.batch,
        "reason": found.reason,
        "row": None if found.row is None else _row(found.row, [device]),
    }


def _unknowns(model: ModelSize, rows: Sequence[PlanRow]) -> list[str]:
    found = []
    if any(row.gathered_bytes is None for row in rows):
        found.append("what units gather is not known: give --layers, or --largest-unit")
    if model.transformer is None:
        found.append("activations are not known: give --layers, --hidden and --seq (and --batch, --vocab)")
    elif model.transformer.vocab is None:
        found.append("logits are not in the activations: give --vocab")
    return found


def _remarks(found: Sequence[Simulation]) -> list[str]:
    remarks = sorted({one.note for one in found if one.note})
    places = sorted({place for one in found for place in one.made_up})
    if places:
        shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        remarks.append(f"values that nobody computed were read as 0 at {shown}: a branch that hangs on one may differ")
    return remarks


def _script_title(script: list[str], found: Simulation) -> str:
    model = found.run.manifest.model
    from fsdp_profile.humanize import count_text

    how = "simulated without data" if found.fake_tensors else "real tensors, a fake process group"
    return f"{script[0]}: {model.name} of {count_text(model.numel)} parameters, {how}"


def _model_of(run: Any) -> dict[str, Any]:
    model = run.manifest.model
    return {"name": model.name, "numel": model.numel, "trainable_numel": model.trainable_numel, "run": run.name}
