"""The exceptions.

SurefootError
├── RecipeError      a recipe cannot be found, or a knob does not fit it
├── WorldError       a step cannot run where it was asked to
├── NonFiniteLoss    the loss is NaN or infinite; training stopped before the update
├── ParityError      what was exported does not compute what was trained
├── MissingPackage   an optional package is not installed
├── RunError         a directory is not a run, or cannot become one
└── UnknownDevice    no datasheet carries this name
"""


class SurefootError(Exception):
    """Every error that surefoot raises on purpose."""


class RecipeError(SurefootError):
    """A recipe cannot be found, or a knob does not fit it."""


class WorldError(SurefootError):
    """A step cannot run where it was asked to."""


class NonFiniteLoss(SurefootError):
    """The loss is NaN or infinite; training stopped before the update."""


class ParityError(SurefootError):
    """What was exported does not compute what was trained."""


class MissingPackage(SurefootError):
    """An optional package is not installed."""


class RunError(SurefootError):
    """A directory is not a run, or cannot become one."""


class UnknownDevice(SurefootError):
    """No datasheet carries this name."""
