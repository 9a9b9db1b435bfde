"""softmax-before-cross-entropy: the buggy and the fixed program."""

from tests.checks.losses.programs import ending
from tests.checks.programs import plain, twin


@twin("softmax-before-cross-entropy")
def _(buggy):
    return plain(ending(lambda h: h.softmax(-1) if buggy else h.log_softmax(-1)))  # the second changes nothing
