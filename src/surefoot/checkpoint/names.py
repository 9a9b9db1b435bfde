"""The names of checkpoint folders: `step-000000123`, or `step-000000123-2` if that step was saved again."""

import re

DRAFT = ".draft-"
"""How the name of a folder begins that is being written or removed."""


def name_of(step: int, take: int) -> str:
    """The name of a checkpoint's folder."""
    return f"step-{step:09}" + (f"-{take}" if take > 1 else "")


def is_name(name: str) -> bool:
    """Whether a folder is named like a checkpoint."""
    return re.fullmatch(r"step-\d+(-\d+)?", name) is not None


def numbers_of(name: str) -> tuple[int, int]:
    """The step in a folder's name, and how many times that step had been saved."""
    _, step, *take = name.split("-")
    return int(step), int(take[0]) if take else 1
