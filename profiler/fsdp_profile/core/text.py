"""Escape text that comes from a run before it is shown."""


def plain(text: str) -> str:
    r"""The text in one line, with its control characters spelled out.

    >>> print(plain("a\x1b[31mb\n"))
    a\x1b[31mb\n
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
