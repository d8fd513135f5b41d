"""Bytes, times and ratios as people read them. GiB is 2**30, GB is 1e9; the two are never mixed."""

import re
from collections.abc import Iterable
from typing import Final

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?", re.IGNORECASE)
_UNITS: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_COUNTS: Final = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_MOST: Final = 1e18  # beyond this a float is no whole number of anything
_ROUNDING: Final = 1e-12
_BINARY: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def bytes_text(size_bytes: int | None) -> str:
    """Binary units with three significant digits or more; exact below 1 KiB.

    >>> bytes_text(3 << 30), bytes_text(1536), bytes_text(-12), bytes_text(None)
    ('3.00 GiB', '1.50 KiB', '-12 B', 'not recorded')
    """
    if size_bytes is None:
        return "not recorded"
    for unit, scale in _BINARY:
        if abs(size_bytes) >= scale:
            return f"{size_bytes / scale:.2f} {unit}"
    return f"{size_bytes} B"


def bytes_of(text: str) -> int:
    """Bytes of a size as people write it; a bare number is bytes.

    >>> bytes_of("512MiB"), bytes_of("1.5 GiB"), bytes_of("2GB"), bytes_of("4096")
    (536870912, 1610612736, 2000000000, 4096)

    Raises:
        ValueError: not a size, or negative.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"'{text}' is not a size; write it as 512MiB, 2GiB or 2GB")
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()])


def count_of(text: str) -> int:
    """A number of things as people write it: 13e9, 13B, 350M, 13_000_000_000.

    >>> count_of("13B"), count_of("7e9"), count_of("1.5k"), count_of("12,288")
    (13000000000, 7000000000, 1500, 12288)

    Raises:
        ValueError: not a number, not a whole one, negative, or a size in bytes.
    """
    plain = text.strip().replace("_", "").replace(",", "")
    if re.fullmatch(r"\d+(?:\.\d+)?\s*([KMGT]i?B)", plain, re.IGNORECASE):
        raise ValueError(f"'{text}' is a size in bytes, not a number; write 13e9 or 13B for 13 billion")
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kKmMbBtT]?)", plain)
    number = float(found[1]) * _COUNTS[found[2].lower()] if found is not None else -1.0
    if found is None or number > _MOST or abs(number - round(number)) > _ROUNDING * number:
        raise ValueError(f"'{text}' is not a whole number; write it as 13e9, 13B or 350M")
    return round(number)


def count_text(number: int) -> str:
    """A number of parameters: three digits and its letter.

    >>> count_text(13_016_000_000), count_text(923_904), count_text(12)
    ('13.02B', '923.90K', '12')
    """
    for letter, scale in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= scale:
            return f"{number / scale:.2f}{letter}"
    return str(number)


def decimal_text(size_bytes: int | None) -> str:
    """Bytes in GB (1e9), as papers count them; small ones in MB or kB.

    >>> decimal_text(208_000_000_000), decimal_text(31_400_000), decimal_text(None)
    ('208.00 GB', '31.40 MB', 'not known')
    """
    if size_bytes is None:
        return "not known"
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if abs(size_bytes) >= scale:
            return f"{size_bytes / scale:,.2f} {unit}"
    return f"{size_bytes} B"


def ns_text(duration_ns: int | None) -> str:
    """A duration in the unit that fits.

    >>> ns_text(1_500), ns_text(2_500_000), ns_text(3_000_000_000), ns_text(None)
    ('1.5 us', '2.50 ms', '3.00 s', 'not recorded')
    """
    if duration_ns is None:
        return "not recorded"
    if abs(duration_ns) < 1_000_000:
        return f"{duration_ns / 1e3:.1f} us"
    if abs(duration_ns) < 1_000_000_000:
        return f"{duration_ns / 1e6:.2f} ms"
    return f"{duration_ns / 1e9:.2f} s"


def rate_text(bytes_per_s: float | None) -> str:
    """A bandwidth in GB/s (1e9, as nccl-tests print it).

    >>> rate_text(23_024_927_536.0), rate_text(1_500_000.0), rate_text(None)
    ('23.02 GB/s', '1.50 MB/s', 'not recorded')
    """
    if bytes_per_s is None:
        return "not recorded"
    if bytes_per_s >= 1e9:
        return f"{bytes_per_s / 1e9:.2f} GB/s"
    return f"{bytes_per_s / 1e6:.2f} MB/s"


def slowdown_text(recorded_ns: int | None, bare_ns: int | None, num_bare: int) -> str:
    """What a recorded step takes beside one in which nothing is recorded.

    >>> slowdown_text(11_800_000, 10_000_000, 24), slowdown_text(None, None, 0)
    ('1.18 times a step after the window (11.80 ms, 10.00 ms: medians, 24 steps after it)', 'not recorded')
    """
    if recorded_ns is None or not bare_ns:
        return "not recorded"
    times = f"{ns_text(recorded_ns)}, {ns_text(bare_ns)}: medians, {num_bare} steps after it"
    return f"{recorded_ns / bare_ns:.2f} times a step after the window ({times})"


def ratio_text(ratio: float | None, *, digits: int = 1) -> str:
    """A ratio as a percentage; a small non-zero ratio never reads as zero.

    >>> ratio_text(0.123), ratio_text(0.00001), ratio_text(0.0), ratio_text(None)
    ('12.3 %', '<0.1 %', '0.0 %', 'not recorded')
    """
    if ratio is None:
        return "not recorded"
    if 0 < abs(ratio) < 0.0005:
        return "<0.1 %"
    return f"{ratio * 100:.{digits}f} %"


def unit_text(name: str) -> str:
    """A unit's name on screen; the root's is empty in the data.

    >>> unit_text(""), unit_text("layers.3")
    ('(root)', 'layers.3')
    """
    return name or "(root)"


def listed(ranks: Iterable[int]) -> str:
    """Ranks in words, runs of them joined.

    >>> listed([3]), listed([0, 1, 2, 5, 7, 6])
    ('rank 3', 'ranks 0-2, 5-7')
    """
    found = sorted(set(ranks))
    runs: list[list[int]] = []
    for rank in found:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"rank{'s' if len(found) != 1 else ''} {text}"
