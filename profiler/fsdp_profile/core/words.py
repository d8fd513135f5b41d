"""The base of all enums: a code for tables and JSON, and a label for people."""

from enum import Enum


class Word(str, Enum):
    """An enum whose members are their own code in tables and JSON; people read `label`."""

    def __str__(self) -> str:
        return str(self.value)

    @property
    def label(self) -> str:
        """What people read: "reduce scatter" for REDUCE_SCATTER; enums with other spellings override it."""
        return str(self.value).lower().replace("_", " ")


def label_of(words: type[Word], code: str) -> str:
    """The label of a code that comes from a table; the code itself where this version does not know it."""
    try:
        return words(code).label
    except ValueError:
        return code
