"""The device's queue, from the launches in a trace."""

from ingest.kineto.kineto_factory import BASE_NS, kernel, launch, timed, write

from fsdp_profile.analysis.time.launches import launches_of
from fsdp_profile.ingest.kineto.reader import read_trace


def queued(tmp_path, *events):
    found = launches_of(read_trace(write(tmp_path / "t.json", [timed("aten::mm", 0, 100), *events]), rank=0))
    begins, ends = (((t - BASE_NS) // 1000).tolist() for t in found.queued)
    return list(zip(begins, ends, strict=True)), found.num_works, found.num_unknown


def test_work_waits_from_the_return_of_its_launch_to_its_start(tmp_path):
    # Launches last 2 us: the first kernel waits 12..20; the second begins inside its launch and waits not at all.
    spans = queued(tmp_path, launch(10, 1), kernel("a", 20, 5, correlation=1), launch(30, 2),
                   kernel("b", 31, 5, correlation=2))  # fmt: skip
    assert spans == ([(12, 20)], 2, 0)


def test_waits_of_several_streams_are_one_union(tmp_path):
    spans = queued(tmp_path, launch(10, 1), launch(15, 2), kernel("a", 20, 5, correlation=1),
                   kernel("b", 40, 5, stream=9, correlation=2))  # fmt: skip
    assert spans == ([(12, 40)], 2, 0)


def test_work_launched_before_the_recording_waits_from_its_beginning(tmp_path):
    copy = timed("Memcpy DtoD", 7, 2, cat="gpu_memcpy", stream=7, correlation=99)
    assert queued(tmp_path, copy, launch(10, 1), kernel("a", 20, 5, correlation=1)) == ([(0, 7), (12, 20)], 2, 1)


def test_a_trace_without_launches_knows_none(tmp_path):
    assert queued(tmp_path, kernel("a", 20, 5)) == ([(0, 20)], 1, 1)


def test_a_cpu_trace_has_no_queue(tmp_path):
    assert queued(tmp_path) == ([], 0, 0)
