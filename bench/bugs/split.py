"""The split: which programs and bugs are held out, settled by their names before any of them was written.

Checks are tuned on the programs in `tuning/` and on nothing else. A program is held out if its base is, or its bug.
No check is changed for what is seen of held-out programs; a program that was looked into moves to the other side.
"""

import hashlib


def digest(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def base_held_out(name: str) -> bool:
    """Two in five base programs, with all that is made of them."""
    return digest(name) % 5 < 2


def bug_held_out(bug: str) -> bool:
    """One in eight bugs of the catalogue, in whatever program."""
    return digest(bug) % 8 == 0


def held_out(base: str, bug: str | None) -> bool:
    return base_held_out(base) or (bug is not None and bug_held_out(bug))


def folder(base: str) -> str:
    """Where the file of a base program lies."""
    return "held_out" if base_held_out(base) else "tuning"
