"""A run without what tells of people, machines and projects: a run like any other, for any export.

[Note: What redaction keeps]
Numbers, and words that this project, torch or a vendor defined (words.py). Removed are host, user, paths,
environment, command line, script and its arguments, source lines, free text (messages, warnings, reasons), names
that the script gave to operators, kernels and process groups, and on request the modules' names. Times stay: unix
nanoseconds of the machine's clock.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.errors import asked_bytes, is_out_of_memory
from fsdp_profile.core.manifest import Manifest, Model, RankRecord
from fsdp_profile.core.schema import DERIVED_TABLES, TABLES
from fsdp_profile.export.redact import words as words
from fsdp_profile.ingest.imported.run import SNAPSHOT, TRACE
from fsdp_profile.ingest.tables import empty_table

_MODULES: Final = frozenset({("units", "name"), ("allocations", "name"), ("allocations", "module"), ("tags", "name")})
_OPERATORS: Final = frozenset({("allocations", "operator"), ("kernels", "name"), ("collectives", "transport")})
_GROUPS: Final = frozenset({("collectives", "group"), ("collectives", "group_description")})
_FIELDS: Final = frozenset({
    "allocator events", "units", "collectives", "Kineto traces", "NVML", "device_used_peak_bytes", "per_step",
    "reserved_peak_bytes", "host_rss_peak_bytes", "peak", "setup_peak_bytes", "median_step_ns",
})  # fmt: skip
_VERSIONS: Final = frozenset({"python", "torch", "cuda", "nccl", "fsdp-profile", "rocm", "driver"})
_IMPORTED: Final = (TRACE, SNAPSHOT)
_COUNTS: Final = ("num_params", "num_foreign", "foreign_bytes")
_PID: Final = 1  # "it recorded something" is all that is asked of it


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """One kind of thing that was taken out."""

    what: str
    count: int
    """Different texts."""
    example: str
    """One original value, shown only to the person who redacts."""
    becomes: str
    """What stands for the example; '' where nothing does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Redaction:
    """How to redact."""

    hide_modules: bool = False
    """Names of modules and parameters become pseudonyms."""
    key: str = ""
    """Key of the pseudonyms: without it, a guessed name could be confirmed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Log:
    """What was changed, text by text."""

    changed: dict[str, dict[str, str]] = field(default_factory=dict)

    def note(self, what: str, old: str, new: str) -> str:
        if old != new:
            self.changed.setdefault(what, {})[old] = new
        return new

    def removals(self) -> list[Removal]:
        return [
            Removal(what=what, count=len(pairs), example=next(iter(pairs)), becomes=next(iter(pairs.values())))
            for what, pairs in self.changed.items()
        ]


def redacted(run: Run, how: Redaction) -> tuple[Run, list[Removal]]:
    """The run without its identifying values, and a list of what was removed. See [Note: What redaction keeps].

    Raises:
        InputError: one of its tables cannot be read.
    """
    log = _Log()
    manifest = _manifest(run.manifest, how, log)
    kept = [name for name in TABLES if name not in DERIVED_TABLES]
    tables = {(rank, name): _table(run.table(name, rank=rank), name, how, log) for rank in run.ranks for name in kept}
    # The path too: errors name it, and a page may hold errors.
    clean = replace(run, path=Path(manifest.name), manifest=manifest, source=_Redacted(tables))
    return clean, log.removals()


class _Redacted:
    """The tables of a redacted run."""

    def __init__(self, tables: dict[tuple[int, str], pa.Table]) -> None:
        self._tables = tables

    def table(self, name: str, *, rank: int) -> pa.Table:
        """One table of one rank."""
        return self._tables.get((rank, name), empty_table(name))


def _table(table: pa.Table, name: str, how: Redaction, log: _Log) -> pa.Table:
    """The table with every word of its text columns asked for; words that no row holds are gone."""
    for number, column in enumerate(TABLES[name]):
        if column.type != "string":
            continue
        used = table.column(number).cast(pa.string()).combine_chunks().dictionary_encode()
        what, rule = _rule(name, column.name, how)
        new = pa.array([log.note(what, word, rule(word)) for word in used.dictionary.to_pylist()], pa.string())
        array = pa.DictionaryArray.from_arrays(used.indices.cast(pa.int32()), new)
        table = table.set_column(number, table.schema.field(number), array.cast(pa.string()).dictionary_encode())
    return table.replace_schema_metadata(None)


def _rule(table: str, column: str, how: Redaction) -> tuple[str, Callable[[str], str]]:
    """What a column holds, and what becomes of a word in it."""
    place = (table, column)
    if place in _MODULES:
        return "module names", lambda word: words.module_path(word, how.key) if how.hide_modules else word
    if place in _OPERATORS:
        return "names of operators and kernels", lambda word: words.operator(
            word, how.key, hide_modules=how.hide_modules
        )
    if place in _GROUPS:
        return "names of process groups", lambda word: words.group(word, how.key)
    if column in words.ENUMS:
        known = {str(member.value) for enum in words.ENUMS[column] for member in enum}
        otherwise = Category.UNKNOWN.value if column == "category" else ""
        return f"unknown words in {table}.{column}", lambda word: word if word in known or not word else otherwise
    if column in words.PATTERNS:
        pattern = words.PATTERNS[column]
        return f"unknown words in {table}.{column}", lambda word: word if pattern.fullmatch(word) else ""
    return ("source lines" if column == "site" else f"words in {table}.{column}"), lambda word: ""


def _manifest(old: Manifest, how: Redaction, log: _Log) -> Manifest:
    for what, texts in (
        ("script arguments", old.script_args),
        ("command line", [" ".join(old.command)]),
        ("warnings", old.warnings),
    ):
        for text in texts:
            log.note(what, text, "")
    name = f"{old.strategy.lower()}-{old.world_size}ranks"
    return Manifest(
        schema=old.schema,
        name=log.note("name of the run", old.name, name),
        created=log.note("local time zone", old.created, _utc(old.created)),
        script=log.note("script", old.script, "script.py" if old.script else ""),
        strategy=old.strategy,
        strategy_detail=log.note(
            "strategy in words", old.strategy_detail, words.strategy_detail(old.strategy_detail, str(old.strategy))
        ),
        world_size=old.world_size,
        device_type=old.device_type if old.device_type in ("cpu", "cuda", "xpu", "hip") else "",
        device_name=log.note("device name", old.device_name, words.device(old.device_name)),
        device_total_bytes=old.device_total_bytes,
        backend=old.backend if old.backend in ("gloo", "nccl", "mpi", "ucc", "fake") else "",
        versions={
            what: log.note("labels of versions", text, words.version(text))
            for what, text in old.versions.items()
            if what in _VERSIONS
        },
        model=_model(old.model, how, log),
        ranks=[_rank(record, how, log) for record in old.ranks],
        sources=_reasons(old.sources, log),
        not_recorded=_reasons(old.not_recorded, log),
        warnings=[f"removed by redaction: {len(old.warnings)}"] if old.warnings else [],
        receipt=old.receipt,
        complete=old.complete,
        extra=_extra(old.extra, how, log),
    )


def _rank(old: RankRecord, how: Redaction, log: _Log) -> RankRecord:
    return replace(
        old,
        host=log.note("hosts", old.host, words.pseudonym("host", old.host, how.key) if old.host else ""),
        pid=_PID if old.pid else 0,
        device=log.note("device name", old.device, words.device(old.device)),
        message=log.note("messages of ranks", old.message, _message(old.message)),
    )


def _message(text: str) -> str:
    """Of an exception only that memory ran out, and how much was asked for."""
    if text == "imported" or (text.startswith("SIG") and text.isalpha() and len(text) < 10):
        return text
    if not is_out_of_memory(text):
        return "removed by redaction" if text else ""
    asked = asked_bytes(text)
    return "OutOfMemoryError: CUDA out of memory" + (f". Tried to allocate {asked} bytes" if asked else "")


def _model(old: Model, how: Redaction, log: _Log) -> Model:
    name = words.pseudonym("m", old.name, how.key) if how.hide_modules and old.name else old.name
    dtypes = {dtype: numel for dtype, numel in old.dtypes.items() if words.PATTERNS["dtype"].fullmatch(dtype)}
    return replace(old, name=log.note("module names", old.name, name), dtypes=dtypes)


def _reasons(old: dict[str, str], log: _Log) -> dict[str, str]:
    return {what: log.note("reasons", text, words.reason(text)) for what, text in old.items() if what in _FIELDS}


def _extra(old: dict[str, Any], how: Redaction, log: _Log) -> dict[str, Any]:
    """What is known of the rest; anything else is dropped."""
    found: dict[str, Any] = {}
    if "imported" in old:
        found["imported"] = [_imported(told, log) for told in _dicts(old["imported"]) if told.get("kind") in _IMPORTED]
    if "process_groups" in old:
        found["process_groups"] = [_group(told, how, log) for told in _dicts(old["process_groups"])]
    if "optimizers" in old:
        found["optimizers"] = [_optimizer(told, log) for told in _dicts(old["optimizers"])]
    for what in sorted(set(old) - set(found)):
        log.note("other facts of the manifest", f"{what}: {old[what]}", "")
    return found


def _imported(told: dict[str, Any], log: _Log) -> dict[str, Any]:
    rank = int(told.get("rank", 0))
    file = log.note("imported files", str(told.get("file", "")), f"{told['kind']} of rank {rank}")
    return {"kind": told["kind"], "rank": rank, "file": file}


def _group(told: dict[str, Any], how: Redaction, log: _Log) -> dict[str, Any]:
    name, description = str(told.get("name", "")), str(told.get("description") or "")
    return {
        "name": log.note("names of process groups", name, words.group(name, how.key)),
        "description": log.note("names of process groups", description, words.group(description, how.key)),
        "ranks": [rank for rank in told.get("ranks", ()) if isinstance(rank, int)],
    }


def _optimizer(told: dict[str, Any], log: _Log) -> dict[str, Any]:
    name = str(told.get("name", ""))
    counts = {what: told[what] for what in _COUNTS if isinstance(told.get(what), int)}
    return {**counts, "name": log.note("optimizers of one's own", name, words.optimizer(name))}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _utc(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone(timezone.utc).isoformat()
    except (ValueError, OverflowError):
        return ""
