"""Tokenizers: bytes, or a byte-pair encoding from a `tokenizer.json`, with the reference that audits the fast one.

Text that spells a special token stays text: special tokens are removed from the tokenizer first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_128_hexdigest

from surefoot.errors import DataError, installing
from surefoot.plain_files import create_new
from surefoot.records.codec import parse, read_plain_file

BYTES = "bytes"
ENDS_OF_DOCUMENT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "<|im_end|>", "[SEP]")


class ByteTokenizer:
    """Every byte is a token, and 256 ends a document."""

    name, size, end_of_document = BYTES, 257, 256

    def encode(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        """The tokens of each text."""
        for text in texts:
            yield np.frombuffer(text.encode(), np.uint8)

    reference = encode


class BytePairTokenizer:
    """The tokenizer in a `tokenizer.json`, as Hugging Face's `tokenizers` writes it."""

    def __init__(self, path: Path, end_of_document: str = "") -> None:
        try:
            self.path, self.content = path, read_plain_file(path, error=DataError).decode("utf-8")
            settings = parse(self.content)
            added = settings["added_tokens"]
            special = {str(each["content"]): each["id"] for each in added if each["special"]}
            ids = {**_ids(settings["model"]["vocab"]), **{each["content"]: each["id"] for each in added}}
            self.size = 1 + max(map(_sound, ids, ids.values()))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _no_tokenizer(path, error) from error
        self.end_of_document = _end_of_document(special, end_of_document, path)
        settings["added_tokens"] = [each for each in added if not each["special"]]
        self._ordinary = json.dumps(settings)

    @property
    def name(self) -> str:
        """A digest of everything that determines its tokens."""
        return f"bpe {self.size} {xxh3_128_hexdigest(self.content.encode())} end {self.end_of_document}"

    def check(self) -> None:
        """Raises if one of the two libraries cannot read it. The reference names line and column of the file."""
        library_tokenizer(self.path)
        _ = self._engine, self._reference

    def encode(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        """The tokens of each text, by the fast engine."""
        ids, offsets = self._engine.encode_batch_flat(list(texts), add_special_tokens=False)
        flat, ends = np.frombuffer(ids, "<u4"), np.frombuffer(offsets, "<u8").tolist()
        for first, end in pairwise(ends):
            yield flat[first:end]

    def reference(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        """The tokens of each text, by the reference tokenizer."""
        for text in texts:
            yield np.array(self._reference.encode(text, add_special_tokens=False).ids, np.uint32)

    @cached_property
    def _engine(self) -> Any:
        return self._made(need("fastokens").Tokenizer.from_json_str)

    @cached_property
    def _reference(self) -> Any:
        return self._made(need("tokenizers").Tokenizer.from_str)

    def _made(self, make: Callable[[str], Any]) -> Any:
        try:
            return make(self._ordinary)
        except Exception as error:  # each library raises its own errors
            raise _no_tokenizer(self.path, error) from error


Tokenizer = ByteTokenizer | BytePairTokenizer


def train_byte_pairs(texts: Iterable[str], size: int, path: Path) -> None:
    """Learns a byte-level byte-pair encoding from texts, and splits words as GPT-2 does."""
    library = need("tokenizers")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size - 1,  # the end of a document comes last
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([ENDS_OF_DOCUMENT[0]])
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(create_new(path)))


def _end_of_document(special: dict[str, int], wanted: str, path: Path) -> int:
    for name in (wanted,) if wanted else ENDS_OF_DOCUMENT:
        if name in special:
            return special[name]
    known = ", ".join(special) or "none"
    raise DataError(f"{path} has no special token {wanted or ENDS_OF_DOCUMENT}; special tokens: {known}")


def _ids(vocabulary: dict[str, Any] | list[Any]) -> dict[str, Any]:
    """The id of each token. The vocabulary of a unigram model is a list of tokens with their scores."""
    if isinstance(vocabulary, dict):
        return vocabulary
    return {str(each[0]): number for number, each in enumerate(vocabulary)}


def _sound(token: str, number: Any) -> int:
    if type(number) is not int or not 0 <= number < 2**32:
        raise ValueError(f"the id of token {token!r} is {number!r}, not a whole number from 0 to {2**32 - 1:,}")
    return number


def library_tokenizer(path: Path) -> Any:
    """The tokenizer in a `tokenizer.json`, by Hugging Face's `tokenizers`."""
    library, content = need("tokenizers"), read_plain_file(path, error=DataError)
    try:
        return library.Tokenizer.from_buffer(content)
    except Exception as error:  # tokenizers raises no narrower class
        raise _no_tokenizer(path, error) from error


def _no_tokenizer(path: Path, error: Exception) -> DataError:
    why = f"it has no {error}" if isinstance(error, KeyError) else error
    return DataError(f"{path} is not a tokenizer.json: {why}")


def need(name: str) -> Any:
    """A library that the extra `data` installs."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(f"tokenising needs {name}: {installing('data', name)}") from error
