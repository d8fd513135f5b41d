"""What would it take: a model under DDP, ZeRO, FSDP and HSDP without the GPUs.

From formulas (--params 13e9), from a simulated step of a script (plan train.py
--world-size 8), or from a measured run (--from RUN). The script's own arguments
follow after --. Nothing here is a measurement: every row says what it rests on.
With `--json` the plan is one JSON document: bytes and ratios.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fsdp_profile.commands._opening import damage, open_run
from fsdp_profile.commands._plan_options import (
    add_formula,
    add_general,
    add_measured,
    devices_for,
    layouts_for,
    model_for,
    options_for,
    possible,
    refuse_foreign,
    target_for,
    with_script_words,
    world_for,
    world_sizes,
)
from fsdp_profile.core.errors import UsageError

if TYPE_CHECKING:
    from fsdp_profile.analysis.run import Run
    from fsdp_profile.plan.formulas.costs import ModelSize, Options, PlanRow
    from fsdp_profile.plan.formulas.devices import Device
    from fsdp_profile.plan.formulas.search import Found
    from fsdp_profile.plan.formulas.strategies import Layout, World
    from fsdp_profile.plan.simulate.simulation import Simulation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fsdp-profile plan`."""
    add_general(parser)
    add_formula(parser)
    add_measured(parser)
    parser.add_argument(
        "script_words", metavar="train.py [-- ARGS]", nargs=argparse.REMAINDER, help="a script to simulate"
    )


def run(args: argparse.Namespace) -> int:
    """Plan; the exit code says nothing about whether it fits."""
    args = with_script_words(args)
    script = [word for word in args.script_words if word]
    if script and args.params:
        raise UsageError("give a script, or --params, not both")
    if args.source is not None and args.params:
        raise UsageError("give --from RUN, or --params, not both")
    if args.search and args.params is None:
        raise UsageError("--search needs --params: it tries many sizes, which only formulas can")
    if args.source is not None or script or args.params is not None:
        refuse_foreign(args, script)
    if args.source is not None:
        return _from_run(args, script)
    if script:
        return _simulated(args, script)
    if args.params is not None:
        return _formulas(args)
    raise UsageError("give --params 13e9, a script to simulate, or --from RUN; see fsdp-profile plan --help")


def _formulas(args: argparse.Namespace) -> int:
    from fsdp_profile.plan.formulas.costs import plan_rows
    from fsdp_profile.plan.formulas.recipes import DEFAULT_RECIPE, find_recipe

    recipe = find_recipe(args.recipe or DEFAULT_RECIPE)
    model, options, devices = model_for(args), options_for(args), devices_for(args)
    if args.search:
        return _search(args, model, options)
    rows: list[PlanRow] = []
    chosen = layouts_for(args)
    worlds = [world_for(args, size) for size in world_sizes(args.world_size or "8")]
    for world in worlds:
        layouts = chosen or possible(world)
        rows += plan_rows(model, recipe, world, layouts=layouts, options=options)
    from fsdp_profile.present.plan import formula_title

    remarks = _unknowns(model, rows)
    title = formula_title(model, recipe, [world.size for world in worlds])
    _show(args, rows, devices, title=title, subtitle=recipe.what, remarks=remarks,
          model={"numel": model.numel, "trainable_numel": model.trained, "recipe": recipe.name})  # fmt: skip
    return 0


def _search(args: argparse.Namespace, model: ModelSize, options: Options) -> int:
    from fsdp_profile.plan.formulas.recipes import DEFAULT_RECIPE, find_recipe
    from fsdp_profile.plan.formulas.search import fewest_ranks, largest_batch
    from fsdp_profile.plan.formulas.strategies import LAYOUTS

    if len(args.devices) != 1:
        raise UsageError("--search: name the one device to fit, such as --device h100")
    (device,) = devices_for(args)
    recipe = find_recipe(args.recipe or DEFAULT_RECIPE)
    layouts = layouts_for(args)
    world = world_for(args, world_sizes(args.world_size or "8")[0])
    if args.search == "gpus":
        found = fewest_ranks(
            model, recipe, device, layouts=layouts or LAYOUTS, options=options, replicas=world.replicas
        )
        what = "Fewest ranks"
    else:
        found = largest_batch(model, recipe, device, world=world, layouts=layouts or possible(world), options=options)
        what = f"Largest batch on {world.size} ranks"
    if args.json:
        _print_json({"device": device.name, "search": args.search, "found": [_found(f, device) for f in found]})
        return 0
    from fsdp_profile.present.plan import formula_title
    from fsdp_profile.render.terminal.console import console
    from fsdp_profile.render.terminal.plan import search_report

    ranks = [world.size] if args.search == "batch" else []
    title = f"{what} of {device.title}: {formula_title(model, recipe, ranks).removesuffix(',  ranks')}"
    console().print(search_report(found, title=title))
    return 0


def _simulated(args: argparse.Namespace, script: list[str]) -> int:
    from fsdp_profile.plan.simulate.simulation import simulated_row

    sizes = world_sizes(args.world_size or "8")
    found = _simulations(args, script, [world_for(args, size) for size in sizes], layouts_for(args))
    rows = [simulated_row(one) for one in found]
    title, model = _script_title(script, found[0]), _model_of(found[0].run)
    _show(args, rows, devices_for(args, rows), title=title, subtitle="", remarks=_remarks(found), model=model)
    return 0


def _simulations(
    args: argparse.Namespace, script: list[str], worlds: Sequence[World], layouts: Sequence[Layout]
) -> list[Simulation]:
    """One after the other: each is a process that keeps one core busy."""
    from fsdp_profile.plan.simulate.simulation import simulate

    found = []
    wanted: list[Layout | None] = [*layouts] or [None]
    for world in worlds:
        for layout in wanted:
            folder = None if args.verify else args.output  # there the recording goes
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
    from fsdp_profile.plan.simulate.simulation import simulate

    source = open_run(args.source)
    with damage(source.path):
        measured, world = measured_row(source), world_of(source)
        layouts = layouts_for(args) or [layout_of(source)]
        worlds = [world_for(args, size, world) for size in world_sizes(args.world_size or str(world.size))]
        if script:
            here = simulate(script, world=world, steps=args.steps)
            found = _simulations(args, script, worlds, layouts)
            rows = [calibrated(one, source=here, run=source) for one in found]
            remarks = _remarks(found)
        else:
            rows = predict(source, [target_for(args, layout, each) for each in worlds for layout in layouts])
            remarks = []
    if args.verify or args.verify_run is not None:
        return _verify(args, source, rows, script)
    title = f"From {source.name}: {source.manifest.strategy_detail}"
    _show(args, [measured, *rows], devices_for(args, rows), title=title,
          subtitle="the first row was measured", remarks=remarks, model=_model_of(source))  # fmt: skip
    return 0


def _verify(args: argparse.Namespace, source: Run, rows: Sequence[PlanRow], script: list[str]) -> int:
    """The prediction beside a run of that configuration: one that is named, or recorded now."""
    from fsdp_profile.commands._plan_verify import record, verify

    path = args.verify_run if args.verify_run is not None else record(source, rows, script, output=args.output)
    found = verify(rows, path)
    if args.json:
        pair = [_row(found.predicted, []), _row(found.measured, [])]
        _print_json({"run": str(path), "error_ratio": found.error_ratio, "rows": pair})
        return 0
    from fsdp_profile.render.terminal.console import console
    from fsdp_profile.render.terminal.plan import verification_report

    console().print(verification_report(found))
    return 0


# What is shown.


def _show(
    args: argparse.Namespace, rows: Sequence[PlanRow], devices: Sequence[Device], *, title: str, subtitle: str,
    remarks: Sequence[str], model: dict[str, Any],
) -> None:  # fmt: skip
    if args.json:
        _print_json({"model": model, "rows": [_row(row, devices) for row in rows], "remarks": list(remarks)})
        return
    from fsdp_profile.render.terminal.console import console
    from fsdp_profile.render.terminal.plan import plan_report

    page = plan_report(rows, devices=devices, title=title, subtitle=subtitle, remarks=remarks, explain=args.explain)
    console().print(page)


def _print_json(document: dict[str, Any]) -> None:
    import json

    from fsdp_profile.core.schema import SCHEMA_VERSION

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
    if any(one.cuda_as_cpu for one in found):
        remarks.append("it asked for CUDA and got the CPU: blocks are not rounded, foreach optimizers not chosen")
    places = sorted({place for one in found for place in one.placeholder_reads})
    if places:
        shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        remarks.append(
            f"values that nobody computed were read as 0 at {shown}: a branch that depends on one may differ"
        )
    return remarks


def _script_title(script: list[str], found: Simulation) -> str:
    model = found.run.manifest.model
    from fsdp_profile.core.humanize import count_text

    how = "simulated without data" if found.fake_tensors else "real tensors, a fake process group"
    return f"{script[0]}: {model.name} of {count_text(model.numel)} parameters, {how}"


def _model_of(run: Any) -> dict[str, Any]:
    model = run.manifest.model
    return {"name": model.name, "numel": model.numel, "trainable_numel": model.trainable_numel, "run": run.name}
