"""The exceptions.

SurefootError
├── RecipeError      a recipe cannot be found, or a knob does not fit it
├── DataError        tokens on disk are damaged, missing, or not what they are said to be
├── WorldError       a step cannot run where it was asked to
├── NonFiniteLoss    the loss is NaN or infinite; training stopped before the update
├── ParityError      what was exported does not compute what was trained
├── RunError         a directory is not a run, or cannot become one
└── UnknownDevice    no datasheet carries this name
"""


class SurefootError(Exception):
    """Every error that surefoot raises on purpose."""


class RecipeError(SurefootError):
    """A recipe cannot be found, or a knob does not fit it."""


class DataError(SurefootError):
    """Tokens on disk are damaged, missing, or not what they are said to be."""


class WorldError(SurefootError):
    """A step cannot run where it was asked to."""


class NonFiniteLoss(SurefootError):
    """The loss is NaN or infinite; training stopped before the update."""


class ParityError(SurefootError):
    """What was exported does not compute what was trained."""


class RunError(SurefootError):
    """A directory is not a run, or cannot become one."""


class UnknownDevice(SurefootError):
    """No datasheet carries this name."""
