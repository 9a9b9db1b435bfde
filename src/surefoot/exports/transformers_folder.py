"""A model of transformers as a Hugging Face folder, with the tokenizer of the folder that it came from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from surefoot.errors import DataError, RunError
from surefoot.finetuning.chat import end_of_turn_if_any
from surefoot.finetuning.hub import TOKENIZER_FILES, WORDS, folder_of
from surefoot.finetuning.local_tokenizer import read_tokenizer
from surefoot.plain_files import make_folder, refusals_of, sync_file, sync_folder

GENERATION = "generation_config.json"


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
        _end_turns(folder)
        for each in folder.iterdir():
            sync_file(each)
        sync_folder(folder)
    return folder


def _end_turns(folder: Path) -> None:
    """Adds the end of a turn to the tokens that end a text. Base models lack it, and a server would write on."""
    file = folder / GENERATION
    if not file.is_file() or not (folder / "tokenizer.json").is_file():
        return
    try:
        turn = end_of_turn_if_any(read_tokenizer(str(folder)))
    except DataError:  # a tokenizer that cannot be read is copied as it is
        return
    settings = json.loads(file.read_bytes())
    ends = settings.get("eos_token_id")
    known = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if turn is not None and turn not in known:
        file.write_text(json.dumps({**settings, "eos_token_id": [*known, turn]}, indent=2) + "\n", encoding="utf-8")


def copied_files(folder: Path) -> tuple[str, ...]:
    """The files of the tokenizer in a folder."""
    return tuple(name for name in TOKENIZER_FILES if (folder / name).exists())
