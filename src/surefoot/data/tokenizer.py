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

from surefoot.errors import DataError
from surefoot.records.codec import parse, read_plain_file
from surefoot.records.plain_files import create_new

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
            special = {str(each["content"]): int(each["id"]) for each in added if each["special"]}
            self.size = 1 + max([*(int(each["id"]) for each in added), *map(int, _ids(settings["model"]["vocab"]))])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataError(f"{path} is not a tokenizer.json: {error!r}") from error
        self.end_of_document = _end_of_document(special, end_of_document, path)
        settings["added_tokens"] = [each for each in added if not each["special"]]
        self._ordinary = json.dumps(settings)

    @property
    def name(self) -> str:
        """A digest of everything that determines its tokens."""
        return f"bpe {self.size} {xxh3_128_hexdigest(self.content.encode())} end {self.end_of_document}"

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
            raise DataError(f"{self.path} is not a tokenizer.json: {error}") from error


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


def _ids(vocabulary: dict[str, int] | list[Any]) -> Iterable[int]:
    return vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))


def need(name: str) -> Any:
    """A library that the extra `data` installs."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(f"tokenising needs {name}: pip install 'surefoot[data]'") from error
