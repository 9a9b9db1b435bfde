"""The exceptions.

SurefootError
├── RecipeError      a recipe cannot be found, or a knob does not fit it
├── DataError        tokens on disk are damaged, missing, or not what their manifest says
├── WorldError       a step cannot run in this world, for example on this device
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


class SurefootError(Exception):
    """Every error that surefoot raises on purpose. `told`: another rank raised it and reports it."""

    told = False


class RecipeError(SurefootError):
    """A recipe cannot be found, or a knob does not fit it."""


class DataError(SurefootError):
    """Tokens on disk are damaged, missing, or not what their manifest says."""


class WorldError(SurefootError):
    """A step cannot run in this world, for example on this device."""


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
