"""The exceptions.

SurefootError
├── RecipeError      a recipe cannot be found, or a knob does not fit it
├── DataError        tokens on disk are damaged, missing, or not what they are said to be
├── WorldError       a step cannot run where it was asked to
├── NonFinite        the loss or the gradients are NaN or infinite; training stopped before the update
├── ParityError      what was exported does not compute what was trained
├── RunError         a directory is not a run, cannot become one, or is in use
├── CheckpointError  a checkpoint could not be saved, or is damaged
├── DiskError        a file could not be written or read: the disk is full, read-only or failing
├── ReplayError      a step that was taken again came out differently
├── ReplicaError     ranks that should hold the same bits do not
├── BudgetError      a budget that a plan cannot be held to
├── MissingPackage   an optional package is not installed
└── UnknownDevice    no datasheet carries this name
"""

import math


class SurefootError(Exception):
    """Every error that surefoot raises on purpose. `told`: another rank raised it, and says so."""

    told = False


class RecipeError(SurefootError):
    """A recipe cannot be found, or a knob does not fit it."""


class DataError(SurefootError):
    """Tokens on disk are damaged, missing, or not what they are said to be."""


class WorldError(SurefootError):
    """A step cannot run where it was asked to."""


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
    """What was exported does not compute what was trained."""


class BudgetError(SurefootError):
    """A budget that a plan cannot be held to."""


class MissingPackage(SurefootError):
    """An optional package is not installed."""


class RunError(SurefootError):
    """A directory is not a run, cannot become one, or is in use."""


class CheckpointError(SurefootError):
    """A checkpoint could not be saved, or is damaged."""


class DiskError(SurefootError):
    """A file could not be written or read: the disk is full, read-only or failing."""


class ReplayError(SurefootError):
    """A step that was taken again came out differently."""


class ReplicaError(SurefootError):
    """Ranks that should hold the same bits do not."""


class UnknownDevice(SurefootError):
    """No datasheet carries this name."""
