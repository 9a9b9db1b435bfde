"""A tokenizer of Hugging Face for models of bytes: token 97 is the byte 97."""

from __future__ import annotations

from typing import Any

from surefoot.exports.formats import need

END = "<|endoftext|>"


def byte_tokenizer(*, ends: bool = False) -> Any:
    """A byte-level encoding without a merge. Every byte is written as one letter, as GPT-2's encoding does.

    With `ends`, token 256 ends a document.
    """
    library = need("tokenizers", "data", "a tokenizer of bytes")
    vocabulary = {letter: byte for byte, letter in enumerate(letters())}
    made = library.Tokenizer(library.models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = library.decoders.ByteLevel()
    if ends:
        made.add_special_tokens([END])
    return made


def letters() -> list[str]:
    """A printable letter for each byte: itself if it is printable, else one from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
