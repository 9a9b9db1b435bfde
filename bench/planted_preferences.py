"""Planted preferences: random answers of letters, of which that with the later letters of the alphabet is preferred.

A model can learn them, and held-out pairs have other answers than those it learned from.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from surefoot.finetuning.chat_corpus import write_chat_corpus

LETTERS = "abcdefgh"
CONTEXT = 24


def value(answer: str) -> float:
    return sum(map(LETTERS.index, answer)) / len(answer)


def write_lines(file: Path, count: int) -> Path:
    """A line for each pair, with answers of three to six letters."""
    draw, lines = random.Random(17), list[str]()
    while len(lines) < count:
        worse, better = sorted(("".join(draw.choices(LETTERS, k=draw.randint(3, 6))) for _ in range(2)), key=value)
        if value(better) > value(worse):
            lines.append(json.dumps({"prompt": f"{len(lines)}: ", "chosen": better, "rejected": worse}))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def write_model(folder: Path) -> Path:
    """A small llama with random weights, and a tokenizer whose tokens are bytes."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<end>"]
    plain.train_from_iterator([], trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet))
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(1)
    sizes = {"vocab_size": 258, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, eos_token_id=1)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def write_corpus(folder: Path, model: Path, count: int) -> Path:
    """A corpus of pairs, a quarter of them held out."""
    lines = write_lines(folder.with_suffix(".jsonl"), count)
    write_chat_corpus([str(lines)], folder, model=str(model), context=CONTEXT + 1, held_out=0.25)
    return folder
