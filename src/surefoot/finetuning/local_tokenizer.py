"""The tokenizer of a folder, or of a model of the hub, read by transformers. No code of a folder runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from surefoot.errors import DataError, installing
from surefoot.finetuning.hub import WORDS, folder_of


def read_tokenizer(folder: str) -> Any:
    """The tokenizer of a folder with `tokenizer.json` and `tokenizer_config.json`."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise DataError(f"the tokenizer of a folder needs transformers: {installing('hf', 'transformers')}") from error
    folder = folder_of(folder, WORDS)
    if not Path(folder).is_dir():
        raise DataError(f"there is no folder {folder}; name the folder with the model's tokenizer.json")
    try:
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        try_out(found)
    except Exception as error:  # a damaged file can make transformers raise anything
        why = str(error).strip().partition("\n")[0]
        raise DataError(f"{folder} holds no tokenizer that transformers can read: {why}") from error
    return found


def try_out(tokenizer: Any) -> None:
    """Raises what a tokenizer raises when it is used: some can be read, and neither take a text nor be written."""
    tokenizer("a 1 \u00e9 \u4e2d \U0001f600")  # also what no vocabulary of words holds
    json.dumps(getattr(tokenizer, "init_kwargs", {}), default=str, ensure_ascii=False).encode()
