"""Findings on the overview: one line each, what to do behind it; why FSDP is not smaller."""

import pytest
from builder import RunBuilder

from fsdp_dashboard.text import code, prose
from fsdp_dashboard.values import markdown
from fsdp_dashboard.views.overview.findings_text import details, headline
from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.findings.finding import Finding, Severity
from fsdp_profile.core import layout
from fsdp_profile.core.categories import Category
from fsdp_profile.core.layout import packaged
from fsdp_profile.core.schema import CollectiveKind, SpanKind, Strategy
from fsdp_profile.present.findings import saves

MIB = 1 << 20
MS = 1_000_000
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b** `c` :smile:"


def said(app):
    return "\n".join(block.value for block in app.markdown)


def labels(app):
    return [one.label for one in app.expander]


def behind(expander):
    return [block.value for block in expander.markdown]


def a_finding(**values):
    return Finding(
        **{"rule": "leak", "severity": Severity.COSTS, "claim": "A.", "evidence": {}, "action": "B.", **values}
    )


# -- the overview


def test_each_finding_is_a_line_with_what_to_do_behind_it(opened):
    app = opened(packaged("sample_runs") / "gpt-ddp-2ranks")
    first, second, rest = app.expander
    assert first.label == (
        ":orange-badge[costs] DDP's buckets hold 3.52 MiB beside 3.52 MiB of gradients: each gradient is there twice."
    )
    assert behind(first) == [
        "**Action**: `DistributedDataParallel(..., gradient_as_bucket_view=True)`: gradients become views of the "
        "buckets.  \n**Saves**: **3.52 MiB**  \n"
        "**Rule**: `buckets-duplicate-gradients`, explained in `docs/findings.md`"
    ]
    assert second.label.startswith(":blue-badge[explains] Step 0 allocates 7.05 MiB of optimizer state at its end")
    assert rest.label == "Not recorded, and why"
    assert "##### Findings" in said(app)
    assert "Why is FSDP not smaller?" not in said(app)


def test_a_run_that_shards_is_asked_why_it_is_not_smaller(opened):
    app = opened(packaged("sample_runs") / "gpt-fsdp2-2ranks")
    assert (
        "- **How was it measured?** :gray-badge[not known]  \n"
        "Tensors hold 10.98 MiB; on CPU there is no pool and no nvidia-smi.\n"
        "- **Do activations dominate?** :green-badge[not a reason]  \n"
        "Activations are 1.51 MiB of 10.98 MiB (13.7 %); sharding does not divide them.\n"
        "- **Are there enough ranks?** :orange-badge[a reason]  \n"
        "2 ranks keep 5.66 MiB of states each and save 5.66 MiB; gathered parameters and buffers take 3.78 MiB back.\n"
        "- **Is the model wrapped in units?** :green-badge[not a reason]  \n"
        "5 units; the largest holds 21.3 % of the parameters and gathers 770.00 KiB at once."
    ) in said(app)


def test_the_findings_of_each_compared_run_are_under_its_name(opened):
    samples = packaged("sample_runs")
    app = opened(samples / "gpt-ddp-2ranks", samples / "gpt-fsdp2-2ranks")
    heads = [block.value for block in app.markdown if block.value.startswith("##### ")]
    assert heads == [
        "##### In short",
        "##### Peak of each rank · `gpt-fsdp2-2ranks`",
        "##### By category at the peak",
        "##### Findings · `gpt-ddp-2ranks`",
        "##### Findings · `gpt-fsdp2-2ranks`",
        "##### Why is FSDP not smaller? · `gpt-fsdp2-2ranks`",
        "##### What ran",
    ]
    assert [label.partition("]")[0] for label in labels(app)] == [
        ":orange-badge[costs",
        ":blue-badge[explains",
        ":blue-badge[explains",
        ":blue-badge[explains",
        ":blue-badge[explains",
        "Not recorded, and why",
    ]


def with_many_findings(path, name="a"):
    """Eight units that something keeps gathered; all of the peak is theirs."""
    run = RunBuilder(path.name, path=path)
    for unit in range(8):
        run.unit(f"{name}{unit}", numel=10, unsharded=MIB, sharded=MIB // 2)
        run.span(unit, SpanKind.UNSHARDED, 10, 40, size=MIB)
        run.alloc(at=10, free=190, size=MIB, category=Category.UNSHARDED_PARAM, unit=unit)
    return run.step(0, 0, 100).step(1, 100, 200).build()


def test_six_findings_are_open_to_the_eye_the_others_behind_one_more(opened, tmp_path):
    run = with_many_findings(tmp_path / "r")
    found = findings(run)
    assert [one.rule for one in found] == ["kept-unsharded"] * 8 + ["deep-prefetch"]
    app = opened(run.path)
    shown = labels(app)
    assert shown[:6] == [headline(one) for one in found[:6]]
    assert shown[6] == "3 more"
    assert [one.label for one in app.expander[6].expander] == [headline(one) for one in found[6:]]


def test_a_run_without_findings_says_so(opened, tmp_path):
    run = RunBuilder("r", strategy=Strategy.NONE, path=tmp_path / "r")
    app = opened(run.alloc(at=1, size=4, category=Category.PARAM).build().path)
    assert "No rule applies to this run." in [caption.value for caption in app.caption]
    assert labels(app) == ["Not recorded, and why"]


def test_a_run_without_a_peak_has_no_findings(opened, tmp_path):
    app = opened(RunBuilder("bare", path=tmp_path / "bare").rank(0).build().path)
    assert "Findings" not in said(app)


def test_a_run_without_a_peak_has_findings_of_time(opened, tmp_path):
    run = RunBuilder("traces", path=tmp_path / "traces")
    for rank in range(2):
        run.rank(rank).step(0, 0, 1000).collective(CollectiveKind.ALL_REDUCE, 400 * rank, 500, group="0", size_bytes=8)
    app = opened(run.build().path)
    assert labels(app)[0].startswith(":orange-badge[costs] Rank 1 came last in 1 of 1 collectives")
    assert "of time only: no memory was recorded; each rule is explained in `docs/findings.md`" in [
        caption.value for caption in app.caption
    ]


def test_damage_that_only_the_findings_meet_leaves_the_peak(opened, make_run):
    run = make_run("r")
    layout.table_path(run.path, 1, "collectives").write_bytes(b"PAR1 not parquet")
    app = opened(run.path)
    assert app.metric[0].label == "Peak, allocated"
    assert app.error
    assert all("record the run again" in error.value for error in app.error)


def test_hostile_names_in_a_claim_stay_text(opened, tmp_path):
    app = opened(with_many_findings(tmp_path / "r", HOSTILE).path)
    assert labels(app)[0] == (
        f":red-badge[problem] 1.00 MiB of gathered parameters of {code(HOSTILE + '0')} are still in memory at the end "
        "of step 0, after its reshard: something refers to them."
    )


# -- the words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ""),
        ({"saves_bytes": MIB}, "**1.00 MiB**"),
        ({"saves_bytes": MIB, "is_estimate": True}, "**1.00 MiB** (estimate)"),
        ({"saves_ns": 2 * MS}, "**2.00 ms per step**"),
        ({"saves_bytes": MIB, "saves_ns": MS, "is_estimate": True}, "**1.00 MiB** and **1.00 ms per step** (estimate)"),
        ({"is_estimate": True, "saves_bytes": 0}, ""),
    ],
)
def test_what_a_finding_saves(values, words):
    assert markdown(saves(a_finding(**values))) == words


def test_a_finding_with_nothing_to_do_says_its_rule():
    assert details(a_finding(action="")) == "**Rule**: `leak`, explained in `docs/findings.md`"


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("Step 0 makes +3.54 MiB (48.7 %), all-gathers' too.", "Step 0 makes +3.54 MiB (48.7 %), `all-gathers'` too."),
        ("Set reshard_after_forward=True, then go.", "Set `reshard_after_forward=True`, then go."),
        ("unit layers.3 and a@b.c www.x.org", "unit `layers.3` and `a@b.c www.x.org`"),
        ("see https://x.org.", "see `https://x.org`."),
        ("a :smile: b", "a `:smile:` b"),
        ("1. no list", "`1`. no list"),
        ("- no list", "`-` no list"),
        ("# no head", "`#` no head"),
        ("a\n\n# b\tc", "a `#` b c"),
        ("...", "`...`"),
        ("x" * 41, f"`{'x' * 41}`"),
        ("", ""),
    ],
)
def test_prose_is_words_and_code(sentence, shown):
    assert prose(sentence) == shown


def test_prose_keeps_a_hostile_name_whole():
    assert prose(f"unit {HOSTILE}, holds it") == f"unit {code(HOSTILE)}, holds it"
