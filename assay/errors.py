"""The error that a user can mend."""


class TaskError(ValueError):
    """Input that cannot be used. The message is one sentence: the file, row and field, and what to
    do."""
