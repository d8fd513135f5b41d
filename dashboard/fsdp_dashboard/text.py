"""Sentences of the pages, as Markdown. Numbers in them were measured.

A name that comes from a run is put into a code span: no Markdown, TeX, emoji code or HTML works in there.
"""

import re
import shlex
from pathlib import Path

_MAX_CODE_CHARS = 400
_MAX_PROSE_CHARS = 1000
_MAX_WORD_CHARS = 40
_PLAIN_WORD = re.compile(r"\(?(?:[^\W\d_]+(?:-[^\W\d_]+)*(?:'s)?|[+-]?\d[\d.,-]*|%)[.,;:)]*")

STEP_TIME = "From the end of the step before; the pause in which the recording is written is not part of it."


def code(text: str) -> str:
    """A name as a Markdown code span, in one line, cut when it is very long.

    >>> print(code("a`b"), code("<b>"))
    `` a`b `` `<b>`
    """
    line = "".join(c if c.isprintable() else " " for c in text)[:_MAX_CODE_CHARS].strip() or "(no name)"
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    pad = " " if longest else ""
    return f"{'`' * (longest + 1)}{pad}{line}{pad}{'`' * (longest + 1)}"


def file_name(label: str) -> str:
    """A run's label as the name of a file.

    >>> file_name("a/b c")
    'a_b_c'
    """
    return re.sub(r"[^\w.-]", "_", label, flags=re.ASCII).strip(".")[:80] or "run"


def path_word(path: Path) -> str:
    """A path as one word of a shell: below the folder the dashboard was started in, from there."""
    here = Path.cwd()
    return shell_word(str(path.relative_to(here) if path.is_relative_to(here) else path))


def shell_word(text: str) -> str:
    """A name as one word of a shell, in one line."""
    return shlex.quote("".join(c if c.isprintable() else "?" for c in text))


def prose(sentence: str) -> str:
    """A sentence with names from a run in it: words and numbers as they are, all other words as code spans.

    Markdown has no way to escape an address or the name of an emoji; in a code span all of them are text.

    >>> print(prose("Unit layers.3 keeps 1.5 MiB: <b> :smile: www.a.b are names."))
    Unit `layers.3` keeps 1.5 MiB: `<b> :smile: www.a.b` are names.
    """
    told: list[tuple[bool, list[str]]] = []
    for number, word in enumerate(sentence[:_MAX_PROSE_CHARS].split()):
        is_plain = _PLAIN_WORD.fullmatch(word) is not None and len(word) <= _MAX_WORD_CHARS
        is_plain = is_plain and not (number == 0 and re.fullmatch(r"\d+[.)]|[+-]", word))  # the mark of a list
        if not told or told[-1][0] is not is_plain:
            told.append((is_plain, []))
        told[-1][1].append(word)
    return " ".join(" ".join(words) if is_plain else _named(" ".join(words)) for is_plain, words in told)


def _named(words: str) -> str:
    """A code span; the sentence's own punctuation comes after it."""
    tail = re.search(r"(?:(?<=\))[.,;:]|[.,;])*$", words)
    end = len(words) if tail is None or tail.start() == 0 else tail.start()
    return code(words[:end]) + words[end:]


def as_list(lines: list[str]) -> str:
    """Several lines as a Markdown list, one as it is."""
    return lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines)
