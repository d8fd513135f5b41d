from rich.style import Style

from fsdp_profile.core.categories import CATEGORIES
from fsdp_profile.render.terminal.palette import paint


def test_the_letter_can_be_read_on_its_colour():
    for category in CATEGORIES:
        style = Style.parse(paint(category))
        ink, ground = (_luminance(c.get_truecolor()) for c in (style.color, style.bgcolor))
        assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) >= 3, category


def _luminance(colour) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
