"""--redact: secrets planted wherever a run can hold text are in no byte of any export, unpacked or not."""

import base64
import gzip
import io
import re
import shutil
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builder import RunBuilder
from recording import ROOT
from render.terminal.samples import check_golden

from fsdp_profile.analysis.run import load_run
from fsdp_profile.commands import main
from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import Manifest, Model, RankRecord
from fsdp_profile.core.schema import TABLES, Ending, Phase, SpanKind
from fsdp_profile.export.formats import FORMATS
from fsdp_profile.export.redact.redaction import Redaction, redacted
from fsdp_profile.ingest.imported.run import TRACE
from fsdp_profile.ingest.manifest import read_manifest, write_manifest
from fsdp_profile.ingest.tables import empty_table, make_table, write_table

SECRET = "s3cr3t"
MODULE = "m0dul3"


def secret(what: str) -> str:
    """A text that says where it was planted."""
    return f"{SECRET}{''.join(c for c in what.title() if c.isalnum())}"


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A run with a secret in every text a manifest and a table can hold, and words that no row holds."""
    b = RunBuilder("run", path=tmp_path / secret("folder"))
    b.unit(f"{MODULE}.0").phase(Phase.FORWARD, 0, 50)
    b.alloc(at=1, free=40, size=1 << 20, unit=0, name=f"{MODULE}.0.weight",
        operator=secret("operator"), site=f"/home/{secret('user')}/train.py:3 {secret('function')}",
        module=f"{MODULE}.0.attention")  # fmt: skip
    b.alloc(at=2, size=1 << 20, category=Category.PARAM, operator=f"Optimizer.step#{secret('optimizer')}.step")
    b.span(0, SpanKind.FORWARD, 1, 40)
    b.kernel(3, 9, name=f"void {secret('kernel')}<float>(int)")
    b.kernel(9, 12, name=f"autograd::engine::evaluate_function: {secret('function')}Backward")
    b.collective(
        "ALL_REDUCE", 12, 14, group=secret("group"), group_description=secret("group description"),
        transport=secret("transport"), dtype=secret("dtype"),
    )  # fmt: skip
    b.row("tags", t_ns=1, address=1, size_bytes=1, category="INPUT", unit=0, name=f"{MODULE}.tag", weak=False)
    b.row("segments", address=1, size_bytes=2, start_ns=0, end_ns=9, start_event=0, end_event=1, stream=0,
          pool=secret("pool"), is_expandable=False)  # fmt: skip
    path = b.build().path
    for name in TABLES:  # what a newer release may write, or a script may have called its phase
        file = layout.table_path(path, 0, name)
        table = pq.read_table(file) if file.exists() else empty_table(name)
        for number, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type):
                column = table.column(number).combine_chunks()
                column = column.chunk(0) if isinstance(column, pa.ChunkedArray) and column.num_chunks else column
                if not isinstance(column, pa.DictionaryArray):
                    continue
                words = [*column.dictionary.to_pylist(), secret(f"unused {name} {field.name}")]
                unused = pa.DictionaryArray.from_arrays(column.indices, pa.array(words, pa.string()))
                table = table.set_column(number, field, unused)
        extra = pa.array([secret("extra column")] * table.num_rows, pa.string())
        meta = {"note": secret(f"metadata of {name}")}
        pq.write_table(table.append_column("extra", extra).replace_schema_metadata(meta), file)
    write_manifest(path, _manifest(read_manifest(path)))
    return path


def _manifest(old: Manifest) -> Manifest:
    record = RankRecord(
        rank=0, host=secret("host"), pid=4_242_424, device=secret("device"), ending=Ending.EXCEPTION, exit_code=1,
        message=f"OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB {secret('message')}",
    )  # fmt: skip
    return Manifest(
        name=secret("name"), created="2026-01-02T03:04:05+09:00", command=["python", secret("command")],
        script=f"/home/{secret('user')}/{secret('script')}.py", script_args=["--token", secret("argument")],
        strategy=old.strategy, strategy_detail=f"FSDP2 {secret('detail')}, 2 ranks", world_size=1,
        device_type=secret("device type"), device_name=f"NVIDIA H100, {secret('device')}", backend=secret("backend"),
        versions={"torch": f"2.13.0+{secret('build')}", secret("version key"): "1", "python": secret("python")},
        model=Model(name=f"{MODULE}Net", numel=1, dtypes={secret("dtype"): 1, "float32": 1}),
        ranks=[record], sources={"NVML": f"not recorded: {secret('why')}", secret("source"): "recorded"},
        not_recorded={"peak": secret("why not"), secret("field"): "x"},
        warnings=[f"could not open /{secret('warning')}"],
        complete=False,
        extra={
            "imported": [{"kind": TRACE, "rank": 0, "file": secret("file"), "path": f"/{secret('path')}"}],
            "process_groups": [{"name": secret("pg"), "description": secret("pg text"), "ranks": [0]}],
            "optimizers": [{"name": secret("optimizer class"), "num_params": 1, "num_foreign": 1, "foreign_bytes": 4}],
            "environment": {"API_KEY": secret("environment")},
            secret("extra"): {"deep": [secret("deep")]},
        },
    )  # fmt: skip


def everything_in(content: bytes) -> bytes:
    """The content, and what is in it however it is packed: zip, gzip, Parquet, base64."""
    found = [content]
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            found += [archive.comment, *(everything_in(archive.read(info)) for info in archive.infolist())]
            found += [info.extra + info.comment + info.filename.encode() for info in archive.infolist()]
    if content[:2] == b"\x1f\x8b":
        found.append(everything_in(gzip.decompress(content)))
    if content[:4] == b"PAR1":
        file = pq.ParquetFile(pa.BufferReader(content))
        found += [repr((file.metadata.metadata, file.schema_arrow)).encode()]
        found += [repr(c.dictionary.to_pylist() if isinstance(c, pa.DictionaryArray) else c.to_pylist()).encode()
                  for column in file.read().columns for c in column.chunks]  # fmt: skip
        found += [repr(pq.read_table(pa.BufferReader(content), read_dictionary=None).to_pydict()).encode()]
    found += [everything_in(base64.b64decode(text)) for text in re.findall(rb">([A-Za-z0-9+/]{80,}=*)<", content)]
    return b"\n".join(found)


@pytest.mark.parametrize("ending", [found.ending for found in FORMATS])
def test_no_export_holds_a_planted_secret(capsys, planted, tmp_path, ending):
    options = (
        [["--table", name] for name in (*TABLES, "peaks", "unit_totals")]
        if ending in (".csv", ".parquet", ".md")
        else []
    )
    for number, option in enumerate([[], *options]):
        plain, clean, hidden = (tmp_path / f"{what}{number}{ending}" for what in ("plain", "clean", "hidden"))
        assert main(["export", str(planted), "-o", str(plain), *option]) == 0
        assert main(["export", str(planted), "-o", str(clean), "--redact", *option]) == 0
        assert main(["export", str(planted), "-o", str(hidden), "--redact", "--hide-modules", *option]) == 0
        told = capsys.readouterr().out
        assert SECRET not in told.replace(str(tmp_path), "")
        assert SECRET.encode() not in everything_in(clean.read_bytes())
        found = everything_in(hidden.read_bytes())
        assert SECRET.encode() not in found and MODULE.encode() not in found
        if not option and ending != ".svg" and ending not in (".csv", ".parquet"):
            assert SECRET.encode() in everything_in(plain.read_bytes()), "the test would not see a secret here"
            assert MODULE.encode() in everything_in(clean.read_bytes()), "module names stay unless asked for"


def test_errors_on_a_page_do_not_name_the_folder(capsys, planted, tmp_path):
    """Two runs of which one has no memory: the comparison is an error, which the page tells."""
    empty = RunBuilder(path=tmp_path / secret("empty folder")).build().path
    page = tmp_path / "x.html"
    assert main(["export", str(planted), str(empty), "-o", str(page), "--redact"]) == 0
    text = page.read_text()
    assert "fsdp2-1ranks: no allocator events of a training step in it; nothing to compare" in text
    assert SECRET not in text


def test_the_pid_and_the_time_zone_go_too(planted, tmp_path):
    clean, _ = redacted(load_run(planted), Redaction())
    assert clean.manifest.ranks[0].pid == 1
    assert clean.manifest.created == "2026-01-01T18:04:05+00:00"


def test_what_is_kept_is_what_the_analysis_asks_for(planted):
    clean, _ = redacted(load_run(planted), Redaction())
    manifest = clean.manifest
    assert manifest.name == "fsdp2-1ranks"
    assert manifest.ranks[0].message == "OutOfMemoryError: CUDA out of memory. Tried to allocate 2147483648 bytes"
    assert manifest.extra["optimizers"] == [
        {"num_params": 1, "num_foreign": 1, "foreign_bytes": 4, "name": "optimizer"}
    ]
    assert manifest.versions == {"torch": "2.13.0", "python": ""}
    assert manifest.warnings == ["removed by redaction: 1"]
    assert clean.table("units", rank=0).column("name").to_pylist() == [f"{MODULE}.0"]
    assert clean.table("allocations", rank=0).column("site").to_pylist() == ["", ""]


def test_pseudonyms_are_the_same_in_two_exports_and_other_with_another_key(planted):
    names = [
        redacted(load_run(planted), Redaction(hide_modules=True, key=key))[0]
        .table("units", rank=0)
        .column("name")[0]
        .as_py()
        for key in ("a", "a", "b")
    ]
    assert names[0] == names[1] != names[2]
    assert re.fullmatch(r"m_[0-9a-f]{8}\.0", names[0])


@pytest.mark.parametrize("name", ["gpt-fsdp2-2ranks", "gpt-ddp-2ranks"])
def test_redaction_changes_no_number_of_a_real_run(capsys, tmp_path, name):
    import json

    documents = []
    for number, options in enumerate(([], ["--redact", "--hide-modules"])):
        path = tmp_path / f"{number}.fsdpz"
        assert main(["export", str(ROOT / "sample_runs" / name), "-o", str(path), *options]) == 0
        capsys.readouterr()
        assert main(["show", str(path), "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert _numbers(documents[0]) == _numbers(documents[1])
    assert len(_numbers(documents[0])) > 200


def _numbers(value: object) -> list[object]:
    """Every number of a document, in order."""
    if isinstance(value, dict):
        return [n for key, one in value.items() if key != "findings" for n in _numbers(one)]
    if isinstance(value, list):
        return [n for one in value for n in _numbers(one)]
    return [value] if isinstance(value, int | float) else []


def test_preview_shows_what_would_go_and_writes_nothing(capsys, monkeypatch, planted, tmp_path):
    monkeypatch.setenv("COLUMNS", "120")
    before = sorted(tmp_path.iterdir())
    assert main(["export", str(planted), "--preview"]) == 0
    text = capsys.readouterr().out
    assert sorted(tmp_path.iterdir()) == before
    assert text.startswith("Would be removed  nothing was written")
    for what in ("script arguments", "command line", "hosts", "messages of ranks", "source lines", "warnings"):
        assert re.search(rf"^{what} +\d", text, re.M), what
    assert re.search(r"^hosts +1  s3cr3tHost +host_[0-9a-f]{8}", text, re.M)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_preview_is_as_reviewed(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["export", str(ROOT / "sample_runs" / "gpt-fsdp2-2ranks"), "--preview", "--hide-modules"]) == 0
    check_golden(f"redaction_{columns}", capsys.readouterr().out)


def test_a_redacted_bundle_opens_and_says_the_same_peak(capsys, tmp_path):
    source, path = ROOT / "sample_runs" / "gpt-fsdp2-2ranks", tmp_path / "x.fsdpz"
    assert main(["export", str(source), "-o", str(path), "--redact"]) == 0
    capsys.readouterr()
    assert main(["show", str(path)]) == 0
    assert "Peak 10.98 MiB allocated on rank 0  backward of step 1, active unit layers.2" in capsys.readouterr().out


def test_tables_written_by_an_older_release_are_redacted_too(tmp_path):
    """A folder without some tables, as imports leave it."""
    run = RunBuilder().alloc(at=1, size=4).build()
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    layout.table_path(copy, 0, "tags").unlink(missing_ok=True)
    write_table(layout.table_path(copy, 0, "ooms"), make_table("ooms", {c.name: [] for c in TABLES["ooms"]}))
    clean, _ = redacted(load_run(copy), Redaction())
    assert clean.table("tags", rank=0).num_rows == 0
