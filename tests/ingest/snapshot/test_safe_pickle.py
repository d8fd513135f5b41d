"""A hostile or damaged pickle is refused with one line; plain data comes back as it was."""

import collections
import gc
import gzip
import os
import pickle
from pathlib import Path

import pytest

from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.snapshot.safe_pickle import load_plain, load_plain_isolated

PLAIN = {"segments": [(1, 2.5, None)], "address": (1 << 64) - 512, "text": "größe", "on": True}
CANARY = "FSDP_PROFILE_RAN_CODE"
ISOLATED_BYTES = 512 << 20


class RunsCode:
    """Pickled as a call of os.system."""

    def __reduce__(self):
        return os.system, (f"echo {CANARY}",)


HOSTILE = {
    "reduce_protocol_0": pickle.dumps(RunsCode(), 0),
    "reduce_protocol_2": pickle.dumps(RunsCode(), 2),
    "reduce_protocol_5": pickle.dumps(RunsCode(), 5),
    "nested": pickle.dumps({"segments": [], "device_traces": [[{"frames": RunsCode()}]]}, 4),
    "inst": f"(S'echo {CANARY}'\nios\nsystem\n.".encode(),
    "obj": f"(cos\nsystem\nS'echo {CANARY}'\no.".encode(),
    "persistent_id": b"Pfoo\n.",
    "binary_persistent_id": b"\x80\x04K\x01Q.",
    "extension": b"\x80\x02\x82\x01.",
    "class_instance": pickle.dumps(collections.OrderedDict(a=1), 4),
    "build_on_dict": b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01ub.",
    "long4_huge": b"\x80\x02\x8b" + (0x7FFFFFFF).to_bytes(4, "little") + b".",
    "frame_huge": b"\x80\x04\x95" + (1 << 50).to_bytes(8, "little") + b"N.",
}
MEMORY_HUNGRY = {
    "bytearray_huge": b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",
    "memo_huge": b"\x80\x02}r\xff\xff\xff\x7f.",
}


@pytest.fixture
def write(tmp_path):
    def write_file(content: bytes) -> Path:
        path = tmp_path / "snapshot.pickle"
        path.write_bytes(content)
        return path

    return write_file


def refusal(path: Path, load=load_plain, **options) -> str:
    """The message of the InputError, which is one line and names the file."""
    with pytest.raises(InputError) as caught:
        load(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_plain_data_of_every_protocol_is_read_plain_or_gzipped(write, protocol, compress):
    path = write(compress(pickle.dumps(PLAIN, protocol)))
    assert load_plain(path) == PLAIN
    assert load_plain(str(path)) == PLAIN


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_hostile_file_is_refused_and_runs_nothing(write, capfd, content, compress):
    message = refusal(write(compress(content)))
    assert CANARY not in message
    assert CANARY not in "".join(capfd.readouterr())


def test_refusal_names_what_was_asked_for_and_the_way_out(write):
    assert refusal(write(HOSTILE["nested"])) == (
        "refused: it asks for 'posix.system', a snapshot holds plain data only; do not open this file with pickle"
    )


def test_names_from_the_file_cannot_break_the_line_or_the_terminal(write):
    message = refusal(write(b"c" + b"\x1b[2J" + b"x" * 500 + b"\nsystem\n."))
    assert "\x1b" not in message
    assert len(message) < 250


def test_truncated_file(write):
    whole = pickle.dumps(PLAIN, 4)
    for kept in range(1, len(whole)):
        assert refusal(write(whole[:kept])).startswith("truncated")


def test_truncated_gzip(write):
    whole = gzip.compress(pickle.dumps(list(range(10_000))))
    assert refusal(write(whole[: len(whole) // 2])).startswith("truncated")


def test_damaged_gzip(write):
    whole = bytearray(gzip.compress(os.urandom(4096)))
    whole[200:400] = bytes(200)
    assert refusal(write(bytes(whole))).startswith(("damaged gzip", "not a readable pickle", "truncated"))


def test_empty_file(write):
    assert refusal(write(b"")) == "empty file; record it again"


@pytest.mark.parametrize("content", [b'{"traceEvents": []}', b"\x00\x01\x02", b"hello\n"])
def test_other_files(write, content):
    message = refusal(write(content))
    assert message.startswith("not a readable pickle")
    assert "_dump_snapshot" in message


def test_checkpoint_of_torch_save(write):
    message = refusal(write(b"PK\x03\x04rest of an archive\n"))
    assert message.startswith("a zip archive, such as torch.save writes; a snapshot is written by")


def test_missing_file_and_folder(tmp_path):
    assert "No such file" in refusal(tmp_path / "absent.pickle")
    assert refusal(tmp_path).startswith("not a regular file")


def test_limit_holds_for_the_file_and_for_what_gzip_makes_of_it(write):
    content = pickle.dumps(bytes(1 << 20))
    assert load_plain(write(content), max_bytes=2 << 20) == bytes(1 << 20)
    assert refusal(write(content), max_bytes=1 << 20).startswith("larger than the limit of 1,048,576 bytes")
    small = write(gzip.compress(content))
    assert small.stat().st_size < 4096
    assert refusal(small, max_bytes=1 << 20).startswith("larger than the limit of 1,048,576 bytes")


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("content", [pickle.dumps(PLAIN), b"hello\n"])
def test_garbage_collector_is_left_as_it_was(write, enabled, content):
    path = write(content)
    was_enabled = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        if content == b"hello\n":
            refusal(path)
        else:
            load_plain(path)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_deep_nesting_is_only_data(write):
    loaded = load_plain(write(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."))
    assert isinstance(loaded, list)


def test_isolated_load_returns_the_same(write):
    path = write(gzip.compress(pickle.dumps(PLAIN)))
    assert load_plain_isolated(path, limit_bytes=ISOLATED_BYTES) == PLAIN


@pytest.mark.parametrize("content", MEMORY_HUNGRY.values(), ids=MEMORY_HUNGRY)
def test_isolated_load_survives_a_file_that_asks_for_all_memory(write, content):
    message = refusal(write(content), load_plain_isolated, limit_bytes=ISOLATED_BYTES)
    assert message.startswith("needs more than 536,870,912 bytes of memory to load")


def test_isolated_load_refuses_as_the_plain_one_does(write, capfd):
    path = write(HOSTILE["nested"])
    assert refusal(path, load_plain_isolated, limit_bytes=ISOLATED_BYTES) == refusal(path)
    assert CANARY not in "".join(capfd.readouterr())


def test_isolated_load_with_too_little_memory(write):
    path = write(pickle.dumps([bytes(1024) + bytes([i % 256]) * 7 + i.to_bytes(4, "big") for i in range(200_000)]))
    message = refusal(path, load_plain_isolated, limit_bytes=128 << 20)
    assert message.startswith("needs more than 134,217,728 bytes of memory to load")
