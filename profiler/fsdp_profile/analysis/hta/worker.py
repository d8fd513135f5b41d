"""Run Holistic Trace Analysis on traces in a process of its own and print its tables as one JSON document.

HTA forks workers, reconfigures logging and, on some traces, raises from deep inside; in this process none of
that reaches the profiler. Its rounding of nanosecond traces gives wrong numbers; the caller's environment turns it off.
"""

import json
import sys
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Read {"traces": {rank: path}} on stdin, print {analysis: {"columns", "rows"} or {"error"}} on stdout."""
    request = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr  # stdout is for the JSON document only
    from hta.trace_analysis import TraceAnalysis

    files = {int(rank): path for rank, path in request["traces"].items()}
    found: dict[str, Any] = {}
    try:
        analysis = TraceAnalysis(trace_files=files, trace_dir="", include_last_profiler_step=True)
    except Exception as e:  # noqa: BLE001  # whatever HTA raises is reported as its result
        found["loading"] = {"error": _line(e)}
    else:
        found = {name: _answer(ask, analysis) for name, ask in _QUESTIONS.items()}
    json.dump(found, out)


def _answer(ask: Callable[[Any], Any], analysis: Any) -> dict[str, Any]:
    try:
        return _table(ask(analysis))
    except Exception as e:  # noqa: BLE001
        return {"error": _line(e)}


_QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "temporal breakdown": lambda a: a.get_temporal_breakdown(visualize=False),
    "communication computation overlap": lambda a: a.get_comm_comp_overlap(visualize=False),
    "idle time": lambda a: a.get_idle_time_breakdown(ranks=a.t.get_ranks(), visualize=False)[0],
    "kernel breakdown": lambda a: a.get_gpu_kernel_breakdown(visualize=False)[0],
}


def _table(frame: Any) -> dict[str, Any]:
    return {"columns": [str(c) for c in frame.columns], "rows": json.loads(frame.to_json(orient="values"))}


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"[:300]


if __name__ == "__main__":
    main()
