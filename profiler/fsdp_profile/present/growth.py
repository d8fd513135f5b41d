"""What grows from step to step, where it comes from, and units that a reference keeps unsharded."""

from collections.abc import Mapping

from fsdp_profile.analysis.memory.growth import Growth, KeptUnsharded
from fsdp_profile.core.humanize import bytes_text, unit_text
from fsdp_profile.present.memory import phase_text, unit_value
from fsdp_profile.present.values import Sentence, Table, Unit, column, name, say, strong, table


def growth(found: Growth) -> Sentence:
    """How much a category grows, between which steps."""
    first, last = found.steps[0], found.steps[-1]
    return say(
        f"Live bytes of {found.category.label} grow by ", strong(f"{bytes_text(found.bytes_per_step)} a step"),
        f": {bytes_text(found.first_bytes)} after step {first}, {bytes_text(found.last_bytes)} after step {last}.",
    )  # fmt: skip


def sites_table(found: Growth, unit_names: Mapping[int, str]) -> Table:
    """The call sites of the blocks that outlived their step."""
    sites = found.sites
    return table(
        "",
        [
            column("per step", Unit.BYTES, [site.bytes_per_step for site in sites]),
            column("blocks", Unit.COUNT, [site.num_blocks for site in sites], follows=True),
            column("phase", Unit.TEXT, [phase_text(site.phase) for site in sites], follows=True),
            column("unit", Unit.NAME, [unit_value(unit_names.get(site.unit)) for site in sites], follows=True),
            column("tensor", Unit.NAME, [site.name or "-" for site in sites], follows=True),
            column("allocated by", Unit.NAME, [site.operator or "-" for site in sites], follows=True),
        ],
        note="These blocks outlived their step.",
    )


def kept_unsharded(found: KeptUnsharded) -> Sentence:
    """A unit whose gathered parameters are still in memory although it was resharded."""
    return say(
        name(unit_text(found.name)), ": ", strong(bytes_text(found.size_bytes)), " of its gathered parameters are "
        f"still in memory at the end of step {found.step}, after its reshard; something refers to them.",
    )  # fmt: skip
