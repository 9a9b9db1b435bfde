"""The tokenizer of a GGUF file: of bytes, of the recipe's corpus, or of the folder that a fine-tune began with.

llama.cpp splits a text before it merges bytes to tokens. It knows ways of splitting by name, so a tokenizer that splits
in another way is left out.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.exports.byte_tokenizer import END, letters
from surefoot.exports.formats import need
from surefoot.exports.text_of_run import text_of
from surefoot.finetuning.chat import end_of_turn_if_any
from surefoot.finetuning.hub import WORDS, folder_of
from surefoot.recipe.recipe import Recipe

NORMAL, CONTROL, WRITTEN, UNUSED = 1, 3, 4, 5
"""Types of tokens in GGUF. `WRITTEN` ones stand in a text as they are."""
NEVER = [f"{END} {END}"]
"""A merge of two tokens that no text holds: llama.cpp refuses a file without merges."""
TABLE = "tokenizer.json"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORDS}|\p{{N}}{{1,3}}|{_REST}": "llama-bpe",
    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORDS}|\p{{N}}|{_REST}": "qwen2",
}
"""llama.cpp's names of the expressions by which Llama 3 and Qwen 2 split."""


@dataclass(frozen=True)
class GgufTokenizer:
    """Tokens in order with their types. `encode` makes the tokens of a text, for a comparison."""

    said: str
    tokens: tuple[str, ...] = ()
    types: tuple[int, ...] = ()
    merges: tuple[str, ...] = ()
    splits: str = "gpt-2"
    begin: int | None = None
    end: int | None = None
    end_of_turn: int | None = None
    adds_begin: bool = False
    template: str = ""
    encode: Callable[[str], list[int]] | None = None

    def add_to(self, file: Any, vocabulary: int) -> None:
        """Writes it. Tokens that it does not know have numbers for names."""
        unknown = range(len(self.tokens), vocabulary)
        file.add_tokenizer_model("gpt2")
        file.add_tokenizer_pre(self.splits)
        file.add_token_list([*self.tokens, *(f"<unused{number}>" for number in unknown)])
        file.add_token_types([*self.types, *(UNUSED for _ in unknown)])
        file.add_token_merges(list(self.merges) or NEVER)
        if self.begin is not None:
            file.add_bos_token_id(self.begin)
        if self.end is not None:
            file.add_eos_token_id(self.end)
        if self.end_of_turn is not None:
            file.add_eot_token_id(self.end_of_turn)
        file.add_add_bos_token(self.adds_begin)
        if self.template:
            file.add_chat_template(self.template)


def tokenizer_of(recipe: Recipe) -> GgufTokenizer:
    """The tokenizer of a recipe's text."""
    text = text_of(recipe)
    ends: dict[str, Any] = {"begin": text.end_of_document, "end": text.end_of_document}
    if text.tokenizer is not None:
        return _read(text.tokenizer, "tokenizer of the corpus", **ends)
    if text.kind == "bytes":
        tokens = (*letters(), *([END] if text.end_of_document is not None else []))
        types = tuple(CONTROL if token == END else NORMAL for token in tokens)
        return GgufTokenizer("a tokenizer of bytes", tokens, types, encode=lambda text: [*text.encode()], **ends)
    folder = Path(folder_of(recipe.init_from or "", WORDS))
    if recipe.init_from and (folder / TABLE).is_file():
        return _read(folder / TABLE, "tokenizer of the folder it began with", **_of_folder(folder))
    return GgufTokenizer("no tokenizer")


def _read(file: Path, said: str, **more: Any) -> GgufTokenizer:
    """From a file of the library tokenizers, if it merges bytes and splits in a way that llama.cpp knows."""
    library = need("tokenizers", "data", "a tokenizer in GGUF")
    try:
        table, made = json.loads(file.read_bytes()), library.Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises no narrower class
        return GgufTokenizer(f"no tokenizer: {file.name} cannot be read: {error}")
    splits, model, more_tokens = splits_of(table), table["model"], table["added_tokens"]
    if splits is None:
        return GgufTokenizer(f"no tokenizer: llama.cpp has no name for how {file.name} splits a text")
    added = {each["content"]: CONTROL if each["special"] else WRITTEN for each in more_tokens}
    numbers = {**model["vocab"], **{each["content"]: each["id"] for each in more_tokens}}
    names = {number: token for token, number in numbers.items()}
    tokens = tuple(names.get(number, f"<unused{number}>") for number in range(max(names) + 1))
    types = tuple(added.get(each, NORMAL if each in numbers else UNUSED) for each in tokens)
    merges = tuple(each if isinstance(each, str) else " ".join(each) for each in model["merges"])
    return GgufTokenizer(
        said,
        tokens,
        types,
        merges,
        splits,
        encode=lambda text: made.encode(text, add_special_tokens=False).ids,
        **more,
    )


def splits_of(table: dict[str, Any]) -> str | None:
    """llama.cpp's name for how a tokenizer splits a text; None if it has none."""
    model, first = table["model"], table.get("pre_tokenizer")
    if model.get("type") != "BPE" or model.get("byte_fallback") or table.get("normalizer") or not first:
        return None
    steps = first["pretokenizers"] if first["type"] == "Sequence" else [first]
    kinds = [each["type"] for each in steps]
    if kinds == ["ByteLevel"] and not steps[0]["add_prefix_space"]:
        return "gpt-2" if steps[0].get("use_regex", True) or not model["merges"] else None
    if kinds == ["Split", "ByteLevel"] and steps[0]["behavior"] == "Isolated" and not steps[0]["invert"]:
        return _SPLITS.get(steps[0]["pattern"].get("Regex", ""))
    return None


def _of_folder(folder: Path) -> dict[str, Any]:
    """The tokens at the ends of a text and the chat template, as transformers reads them."""
    library = need("transformers", "hf", "a tokenizer in GGUF")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = library.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception:  # a folder with a table alone; transformers raises many types
            return {}
    template = made.chat_template if isinstance(made.chat_template, str) else ""
    begins = made.bos_token_id is not None and made("a")["input_ids"][:1] == [made.bos_token_id]
    ends = {"end": made.eos_token_id, "end_of_turn": end_of_turn_if_any(made)}
    return {"begin": made.bos_token_id, **ends, "adds_begin": begins, "template": template}
