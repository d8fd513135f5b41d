"""Steps, phases and units of imported traces, by their annotations."""

import json

from ingest.imported.importing import BASE_NS, US, imported
from ingest.kineto.kineto_factory import document, kernel, launch, timed


def test_steps_and_phases_by_annotations(tmp_path):
    """Two steps; the second one's last kernel runs after its end. The backward recomputes a forward."""
    note = {"cat": "user_annotation"}
    events = [
        timed("aten::empty", 0, 5),
        timed("ProfilerStep#7", 10, 100, **note), timed("ProfilerStep#8", 110, 90, **note),
        timed("DistributedDataParallel.forward", 20, 20, **note),
        timed("autograd::engine::evaluate_function: AddBackward", 50, 10, tid=9),
        timed("autograd::engine::evaluate_function: MmBackward", 62, 18, tid=9),
        timed("DistributedDataParallel.forward", 65, 5, tid=9, **note),
        timed("Optimizer.step#AdamW.step", 90, 15, **note),
        launch(25, 1), kernel("gemm", 30, 10, correlation=1),
        launch(195, 2), kernel("late", 230, 10, correlation=2),
    ]  # fmt: skip
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(document(events, distributedInfo={"rank": 0, "world_size": 1})))
    run = imported(tmp_path, path)
    steps = [(r["step"], (r["start_ns"] - BASE_NS) // US, (r["end_ns"] - BASE_NS) // US, r["complete"])
             for r in run.table("steps", rank=0).to_pylist()]  # fmt: skip
    assert steps == [(-1, 0, 10, True), (7, 10, 110, True), (8, 110, 200, True), (-2, 200, 240, False)]
    phases = [(r["step"], r["phase"], (r["start_ns"] - BASE_NS) // US) for r in run.table("phases", rank=0).to_pylist()]
    assert phases == [
        (-1, "SETUP", 0), (7, "OTHER", 10), (7, "FORWARD", 20), (7, "BACKWARD", 50), (7, "OTHER", 80),
        (7, "OPTIMIZER", 90), (7, "OTHER", 105), (8, "OTHER", 110), (-2, "OTHER", 200),
    ]  # fmt: skip
    kernels = run.table("kernels", rank=0).to_pylist()
    assert [(r["name"], r["step"]) for r in kernels] == [("gemm", 7), ("late", 8)]
    assert run.manifest.ranks[0].num_steps == 2


def test_fsdp2_annotations_name_units_and_what_they_did(tmp_path):
    note = {"cat": "user_annotation"}
    events = [
        timed("FSDP::root_pre_forward", 0, 2, **note),
        timed("FSDP::pre_forward", 2, 18, **note), timed("FSDP::all_gather", 3, 7, **note),
        timed("FSDP::pre_forward (layers.0)", 30, 20, **note), timed("FSDP::all_gather (layers.0)", 31, 9, **note),
        timed("FSDP::all_gather_copy_out (layers.0)", 42, 6, **note),
        timed("FSDP::post_forward (layers.0)", 80, 5, **note),
        timed("FSDP::pre_backward (layers.0)", 100, 5, **note),
        timed("FSDP::post_backward_reduce (layers.0)", 140, 10, **note),
    ]  # fmt: skip
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(document(events, distributedInfo={"rank": 0, "world_size": 2})))
    run = imported(tmp_path, path)
    assert run.table("units", rank=0).column("name").to_pylist() == ["", "layers.0"]
    spans = [(r["unit"], r["kind"], (r["start_ns"] - BASE_NS) // US, (r["end_ns"] - BASE_NS) // US)
             for r in run.table("unit_spans", rank=0).to_pylist()]  # fmt: skip
    assert spans == [
        (0, "ALL_GATHER", 3, 10), (1, "FORWARD", 30, 85), (1, "ALL_GATHER", 31, 40), (1, "COPY_OUT", 42, 48),
        (1, "BACKWARD", 100, 140), (1, "REDUCE", 140, 150),
    ]  # fmt: skip
