"""Every error a user can cause or meet, one class each; only commands/ turns them into text."""


class FsdpProfileError(Exception):
    """Base of all errors of this package; its message is one line: what, where, what to do."""


class UsageError(FsdpProfileError):
    """The command line or an argument does not make sense."""


class InputError(FsdpProfileError):
    """A file or folder given by the user cannot be used."""


class SchemaError(InputError):
    """A run was written with columns or a version that this release cannot read."""


class OutputError(FsdpProfileError):
    """The place to write to is missing, full, read-only or already taken."""


class MissingExtraError(FsdpProfileError):
    """An optional dependency is needed for this and is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra: pip install 'fsdp-profile[{extra}]'")
        self.extra = extra
