"""The line of user code that is running, for messages."""

from __future__ import annotations

import os
import sys
from types import FrameType

from surefoot.source.owners import DRIVING, owner

NOT_THE_USER = {"torch", "surefoot", *sys.stdlib_module_names}
_ENDS = (*DRIVING, "torch.utils.data.dataloader")
"""What a loader does by itself, such as drawing its seed, is not done by the line that asks for a batch."""


def where(frame: FrameType | None = None) -> str:
    """` at model.py:12`, the nearest line that is not torch's or surefoot's. Empty if there is none, as in backward.

    If that line is in an installed package, the nearest line outside is named too. Begins at a frame of any thread, or
    at the caller.
    """
    frame = frame or sys._getframe(1)
    found: list[str] = []
    while frame is not None:
        module, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        if module.startswith(_ENDS):
            break
        if module.split(".")[0] not in NOT_THE_USER and not file.startswith("<"):
            is_installed = owner(file) == "installed"
            if not found or not is_installed:
                found.append(f"{os.path.basename(file)}:{frame.f_lineno}")
            if not is_installed:
                break
        frame = frame.f_back
    return f" at {', called at '.join(found)}" if found else ""
