"""The tokenizer in a local folder, read by transformers. Nothing is downloaded, and no code of the folder runs."""

from __future__ import annotations

from typing import Any

from surefoot.errors import DataError


def read_tokenizer(folder: str) -> Any:
    """The tokenizer of a folder with `tokenizer.json` and `tokenizer_config.json`."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise DataError("the tokenizer of a folder needs transformers: pip install 'surefoot[finetune]'") from error
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a damaged file can make transformers raise anything
        raise DataError(f"{folder} holds no tokenizer that transformers can read: {error}") from error
