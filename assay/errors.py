"""The error that a user can mend, and what to install for what is optional."""


class TaskError(ValueError):
    """Input that cannot be used. The message is one sentence: the file, row and field, and what to
    do."""


def install_extra(extra: str) -> str:
    """What to run for the optional libraries of `extra` (pyproject.toml).

    Assay is installed from its checkout: the package of this name in public indexes is another
    project.
    """
    return f"run `pip install -e '.[{extra}]'` in the checkout of Assay"
