"""Writes the folder of a Llama: its configuration, a small tokenizer and, if asked, weights that are only headers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

SHAPES = {
    "tiny": {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2, "num_attention_heads": 8},
    "7b": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
}
VOCABULARY = 32_000
WORDS = 200
"""The words that the tokenizer knows, `w0`, `w1` and so on: a batch does not tell how many there could be."""


def write_model(folder: Path, size: str, *, weights: bool) -> None:
    """Writes a model's folder. The file of weights has headers and a hole: it takes no room on a disk."""
    from transformers import LlamaConfig

    folder.mkdir(parents=True, exist_ok=True)
    ends = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 3}
    config = LlamaConfig(**SHAPES[size], **ends, vocab_size=VOCABULARY, architectures=["LlamaForCausalLM"])
    config.dtype = "bfloat16"
    config.save_pretrained(folder)
    _write_tokenizer(folder)
    if weights:
        _write_headers(folder / "model.safetensors", config)


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", "<bos>", *(f"w{i}" for i in range(WORDS))])}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>", "bos_token": "<bos>"}
    PreTrainedTokenizerFast(tokenizer_object=made, **ends).save_pretrained(folder)


def _write_headers(file: Path, config: object) -> None:
    import torch
    from transformers import LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(config)  # type: ignore[arg-type]
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, weight in model.state_dict().items():
        end = at + weight.numel() * 2
        header[name] = {"dtype": "BF16", "shape": list(weight.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
    os.truncate(file, 8 + len(text) + at)


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), sys.argv[2], weights="--weights" in sys.argv)
