"""Files that are whole or not there."""

import os
from pathlib import Path


def write_whole(final: Path, text: str) -> None:
    """A file with this text, or what was there before: written beside it, synced, then renamed."""
    draft = final.with_name(f".{final.name}.part")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, final)
