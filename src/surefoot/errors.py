"""The exceptions.

SurefootError
├── RecipeError      a recipe cannot be found, or a knob does not fit it
├── DataError        tokens on disk are damaged, missing, or not what their manifest says
├── WorldError       a step cannot run in this world, for example on this device
├── RankLost         another rank ended or was killed in the middle of the work
├── NonFinite        the loss or the gradients are NaN or infinite; training stopped before the update
├── ParityError      an exported model computes other numbers than the trained model
├── RunError         a directory is not a run, cannot become one, or is in use
├── CheckpointError  a checkpoint could not be saved, or is damaged
├── DiskError        a file could not be written or read: the disk is full, read-only or failing
├── ReplayError      a repeated step gave a different result
├── ReplicaError     ranks that should hold the same bits do not
├── BudgetError      a plan cannot be compared with this budget
├── MissingPackage   a package is not installed, or is too old
└── UnknownDevice    no datasheet has this name
"""

import math
from collections.abc import Iterable
from difflib import get_close_matches


class SurefootError(Exception):
    """Every error that surefoot raises on purpose. `told`: another rank raised it and reports it."""

    told = False


class RecipeError(SurefootError):
    """A recipe cannot be found, or a knob does not fit it."""


class DataError(SurefootError):
    """Tokens on disk are damaged, missing, or not what their manifest says."""


class WorldError(SurefootError):
    """A step cannot run in this world, for example on this device."""


class RankLost(SurefootError):
    """Another rank ended or was killed in the middle of the work. `killed`: it raised no error of its own."""

    killed = True


class NonFinite(SurefootError):
    """The loss or the gradients are NaN or infinite; training stopped before the update."""

    def __init__(self, step: int, loss: float, grad_norm: float, cause: str = "") -> None:
        self.step, self.loss, self.grad_norm = step, loss, grad_norm
        what = (
            f"the loss of step {step} is {loss}"
            if not math.isfinite(loss)
            else f"the gradients of step {step} are not finite"
        )
        super().__init__(f"{what}; the update was not made" + (f"\n{cause}" if cause else ""))


class ParityError(SurefootError):
    """An exported model computes other numbers than the trained model."""


class BudgetError(SurefootError):
    """A plan cannot be compared with this budget."""


class MissingPackage(SurefootError):
    """A package is not installed, or is too old."""


class RunError(SurefootError):
    """A directory is not a run, cannot become one, or is in use."""


class CheckpointError(SurefootError):
    """A checkpoint could not be saved, or is damaged."""


class DiskError(SurefootError):
    """A file could not be written or read: the disk is full, read-only or failing."""


class ReplayError(SurefootError):
    """A repeated step gave a different result."""


class ReplicaError(SurefootError):
    """Ranks that should hold the same bits do not."""


class UnknownDevice(SurefootError):
    """No datasheet has this name."""


ON_AN_INDEX = False
"""Whether a package index has surefoot, so that `pip install 'surefoot[hf]'` works."""


def installing(extra: str, *packages: str) -> str:
    """The command that installs packages of an extra. All hints take it from here."""
    return f"pip install 'surefoot[{extra}]'" if ON_AN_INDEX else f"pip install {' '.join(packages)}"


def first_line(error: BaseException) -> str:
    """The class of an error and the first line of its text, which may have none."""
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0].removesuffix(": ")


def near(name: str, known: Iterable[str], *, most: int = 4) -> list[str]:
    """The known names that a user may have meant: those that contain the name first, then those of similar letters."""
    by_letters = {each.lower(): each for each in known}
    word = name.lower()
    parts = [each for each in by_letters if each.startswith(word)] if len(word) > 1 else []
    parts += [each for each in by_letters if word in each] if len(word) > 2 else []
    found = dict.fromkeys([*parts, *get_close_matches(word, by_letters, n=3)])
    return [by_letters[each] for each in found][:most]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean 'layers'? `, or nothing if no name is similar."""
    found = near(name, known)
    return f"did you mean {' or '.join(map(repr, found))}? " if found else ""


def known_names(name: str, known: Iterable[str]) -> str:
    """The end of an error for an unknown name: similar ones if there are any, then all."""
    names = list(known)
    return f"{did_you_mean(name, names)}known: {', '.join(names)}"
