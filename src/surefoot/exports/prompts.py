"""Between text and tokens: a prompt becomes tokens, by a chat template if the model learned one, and tokens text."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any, Protocol

from surefoot.data.formats import is_corpus
from surefoot.data.tokenizer import BYTES, library_tokenizer, need
from surefoot.errors import RunError
from surefoot.exports.text_of_run import text_of, text_of_corpus
from surefoot.finetuning.chat import end_of_turn, has_template, prompt_tokens, rendered_prompt
from surefoot.finetuning.chat_corpus import TOKENIZER, has_messages, is_chat
from surefoot.finetuning.hub import TOKENIZER_FILES, WORDS, folder_of
from surefoot.finetuning.local_tokenizer import read_tokenizer
from surefoot.recipe.recipe import Recipe


class Words(Protocol):
    """Between text and tokens."""

    is_chat: bool
    """Whether a prompt is a user's message in a chat template, and the text after it the assistant's answer."""
    ends: frozenset[int]
    """The tokens that end a text."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt."""

    def next(self, token: int) -> str:
        """The text that can be printed after this token."""


class Pieces:
    """A tokenizer of transformers. A letter that is not whole yet waits for the next token."""

    def __init__(self, tokenizer: Any, *, is_chat: bool) -> None:
        self._tokenizer, self._made, self._said, self.is_chat = tokenizer, list[int](), "", is_chat
        found = {tokenizer.eos_token_id, end_of_turn(tokenizer) if is_chat else None}
        self.ends = frozenset(each for each in found if each is not None)

    def encode(self, text: str) -> list[int]:
        if self.is_chat:
            return list(self._tokenizer(rendered_prompt(text, self._tokenizer), add_special_tokens=False)["input_ids"])
        return prompt_tokens(text, self._tokenizer)

    def next(self, token: int) -> str:
        if token in self.ends:
            return ""
        self._made.append(token)
        whole = self._tokenizer.decode(self._made, skip_special_tokens=True)
        if whole.endswith("\ufffd") or not whole.startswith(self._said):
            return ""
        new, self._said = whole[len(self._said) :], whole
        return new


class Bytes:
    """Every byte is a token. A token that is no byte, and a cut letter, are shown as a replacement character."""

    is_chat, ends = False, frozenset[int]()

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def next(self, token: int) -> str:
        return self._decoder.decode(bytes([token])) if token < 256 else self._decoder.decode(b"\xff")


class BytePairs:
    """The tokenizer in a `tokenizer.json`. A token may complete a letter that earlier ones began."""

    is_chat, ends = False, frozenset[int]()

    def __init__(self, file: Path) -> None:
        self._tokenizer = library_tokenizer(file)
        self._stream = need("tokenizers").decoders.DecodeStream(skip_special_tokens=True)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def next(self, token: int) -> str:
        return self._stream.step(self._tokenizer, token) or ""


def words_of_folder(tokenizer: Any, *, raw: bool) -> Words:
    """Those of a Hugging Face folder: if its tokenizer has a chat template, a prompt is a message."""
    return Pieces(tokenizer, is_chat=has_template(tokenizer) and not raw)


def words_of_run(path: str, recipe: Recipe, *, raw: bool) -> Words:
    """Those that the recipe's corpus was made with; else those of the folder that its weights came from."""
    corpus = _corpus_of(recipe)
    if corpus is not None and is_chat(corpus):
        return Pieces(_of_chat(corpus), is_chat=has_messages(corpus) and not raw)
    text = text_of_corpus(corpus) if corpus is not None else text_of(recipe)
    if text.tokenizer is not None:
        return BytePairs(text.tokenizer)
    if text.kind == "bytes":
        return Bytes()
    if (first := _of_first_weights(recipe)) is not None:
        return Pieces(first, is_chat=False)
    raise RunError(f"{path} does not say how its text became tokens; name it: --tokenizer bytes|FILE")


def tokenizer_of_run(recipe: Recipe) -> Any | None:
    """The tokenizer of conversations that a run learned, or of the model that it began with; None if it has neither."""
    corpus = _corpus_of(recipe)
    return _of_chat(corpus) if corpus is not None and is_chat(corpus) else _of_first_weights(recipe)


def _of_chat(corpus: str) -> Any:
    """The tokenizer of a corpus of conversations."""
    return read_tokenizer(str(Path(corpus) / TOKENIZER))


def _of_first_weights(recipe: Recipe) -> Any | None:
    """The tokenizer of the folder that the weights came from."""
    if not recipe.init_from:
        return None
    folder = Path(folder_of(recipe.init_from, WORDS))
    return read_tokenizer(str(folder)) if any((folder / name).is_file() for name in TOKENIZER_FILES) else None


def _corpus_of(recipe: Recipe) -> str | None:
    """The corpus of tokens that a knob names."""
    named = (recipe.knobs.get(knob) for knob in ("corpus", "data"))
    return next((each for each in named if isinstance(each, str) and each and is_corpus(each)), None)


def named_words(tokenizer: str) -> Words:
    """Those that the user names."""
    if tokenizer == BYTES:
        return Bytes()
    file = Path(tokenizer) / "tokenizer.json" if Path(tokenizer).is_dir() else Path(tokenizer)
    if not file.is_file():
        raise RunError(f"no tokenizer {tokenizer!r}; name `bytes` or a tokenizer.json")
    return BytePairs(file)
