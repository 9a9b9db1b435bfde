"""Why an exporter or a runtime failed, in one line."""

from __future__ import annotations

import os

from surefoot.errors import first_line
from surefoot.events.callers import raised_at


def why(error: Exception) -> str:
    """The first line of an exporter's error, with the innermost line of code that is neither torch's nor ours."""
    place = raised_at(error)
    return ("" if place is None else f"{os.path.basename(place[0])}:{place[1]}: ") + first_line(error)
