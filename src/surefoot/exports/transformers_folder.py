"""A model of transformers as a Hugging Face folder, with the tokenizer of the folder that it came from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from surefoot.errors import RunError
from surefoot.finetuning.hub import TOKENIZER_FILES, WORDS, folder_of
from surefoot.plain_files import make_folder, refusals_of, sync_file, sync_folder


def write_folder(model: Any, folder: Path, source: str | None) -> Path:
    """Writes config, weights and generation config, and copies the tokenizer of `source`, the model's first folder."""
    if not hasattr(model, "save_pretrained"):
        raise RunError(
            f"merge writes Hugging Face folders, and {type(model).__name__} is no model of transformers; "
            "`surefoot export` writes its weights"
        )
    make_folder(folder)
    first = folder_of(source or "", WORDS)
    with refusals_of(folder):
        model.save_pretrained(str(folder))
        licences = [each.name for each in Path(first).glob("LICENSE*")] if source else []
        for name in (*TOKENIZER_FILES, *licences):
            given = Path(first) / name
            if source and given.is_file() and not (folder / name).exists():
                shutil.copyfile(given, folder / name)
        for each in folder.iterdir():
            sync_file(each)
        sync_folder(folder)
    return folder


def copied_files(folder: Path) -> tuple[str, ...]:
    """The files of the tokenizer in a folder."""
    return tuple(name for name in TOKENIZER_FILES if (folder / name).exists())
