"""clipping-scaled-gradients: the buggy and the fixed program."""

from tests.checks.precision.programs import scaled
from tests.checks.programs import twin


@twin("clipping-scaled-gradients")
def _(buggy):
    return scaled(unscale=not buggy)
