"""A small model, preferences that it can learn, and a corpus of them, for tests of DPO."""

import json
import random
from pathlib import Path
from typing import Any

from surefoot.finetuning.chat_corpus import write_chat_corpus
from tests import tuned_models

CONTEXT = 32
LETTERS = "abcdefgh"


def model(folder: Path, template: str | None = tuned_models.TEMPLATE) -> Path:
    """A decoder of two blocks with the byte-level tokenizer that it was made for."""
    tuned_models.llama(folder, vocab_size=300, max_position_embeddings=128, bos_token_id=0, eos_token_id=1)
    return tuned_models.tokenizer(folder, template)


def planted(count: int = 60) -> list[dict[str, Any]]:
    """Answers of three to five letters. That whose letters come later in the alphabet on average is preferred."""
    draw = random.Random(5)
    found = list[dict[str, Any]]()
    while len(found) < count:
        worse, better = sorted(("".join(draw.choices(LETTERS, k=draw.randint(3, 5))) for _ in range(2)), key=value)
        if value(better) > value(worse):
            found.append({"prompt": f"{len(found)}: ", "chosen": better, "rejected": worse})
    return found


def value(answer: str) -> float:
    """What the planted preference is about."""
    return sum(map(LETTERS.index, answer)) / len(answer)


def lines(file: Path, records: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    return str(file)


def corpus(folder: Path, model_folder: Path, count: int = 60, held_out: float = 0.25) -> Path:
    """A corpus of planted preferences, of which some are held out."""
    written = lines(folder.with_suffix(".jsonl"), planted(count))
    write_chat_corpus([written], folder, model=str(model_folder), context=CONTEXT + 1, held_out=held_out)
    return folder
