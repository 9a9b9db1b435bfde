"""Files that are whole or not there."""

import os
from pathlib import Path

from surefoot.records.plain_files import open_new


def write_whole(final: Path, text: str) -> None:
    """A file with this text, or what was there before: written beside it, synced, then renamed."""
    draft = final.with_name(f".{final.name}.part")
    with open_new(draft) as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, final)
