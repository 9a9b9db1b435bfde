"""Models that bench/exports.py exports: built-in recipes, hand-written ones, architectures of transformers, a LoRA."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import Dataset, TensorDataset

from surefoot import Recipe, load_recipe

FASHION = "/usr/share/datasets/fashion-mnist"


def of(model: Callable[[], Any], data: Callable[[], Any], loss: Callable[..., Any]) -> Recipe:
    """A recipe that trains a few steps."""
    return Recipe(
        model=model,
        data=data,
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        micro_batch_size=4,
        max_steps=4,
    )


class Vae(nn.Module):
    """A tensor and a keyword in, a tuple out."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, images: Tensor, *, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(images).chunk(2, dim=-1)
        return self.decode(mean + noise * (log_variance / 2).exp()), mean, log_variance


def vae() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        made, mean, log_variance = model(batch[0], noise=batch[1])
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=-1).mean() / 2
        return nn.functional.mse_loss(made, batch[0]) + divergence

    return of(Vae, lambda: TensorDataset(torch.randn(64, 64), torch.randn(64, 8)), loss)


class Tagger(nn.Module):
    """A packed LSTM: it reads the lengths as numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.body, self.head = nn.Embedding(50, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 5)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.token(words), lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.head(pad_packed_sequence(self.body(packed)[0], batch_first=True, total_length=words.shape[1])[0])


def tagger() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(model(*batch).flatten(0, 1), batch[0].flatten() % 5)

    return of(Tagger, lambda: TensorDataset(torch.randint(50, (64, 9)), torch.randint(3, 10, (64,))), loss)


class Translator(nn.Module):
    """An encoder and a decoder: a dict in, a dict out."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(60, 32), nn.Linear(32, 60)
        self.body = nn.Transformer(32, 2, 2, 2, 64, dropout=0.0, batch_first=True)

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        source, target = self.token(batch["source"]), self.token(batch["target"])
        seen = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1)
        hidden = self.body(source, target, tgt_mask=seen)
        return {"logits": self.head(hidden), "hidden": hidden}


class Pairs(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        draws = torch.Generator().manual_seed(number)
        return {name: torch.randint(60, (size,), generator=draws) for name, size in (("source", 11), ("target", 7))}


def translator() -> Recipe:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        logits = model(batch)["logits"]
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch["target"][:, 1:].flatten())

    return of(Translator, Pairs, loss)


def of_transformers(name: str) -> Recipe:
    """A tiny model of an architecture, called with keywords, on random tokens."""
    import transformers

    small = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    wide = {**small, "intermediate_size": 64, "max_position_embeddings": 64}
    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "hf bert": ("BertConfig", "BertForSequenceClassification", wide),
        "hf gpt2": ("GPT2Config", "GPT2LMHeadModel", {"vocab_size": 120, "n_embd": 32, "n_layer": 2, "n_head": 2}),
        "hf llama": ("LlamaConfig", "LlamaForCausalLM", {**wide, "num_key_value_heads": 1}),
        "hf t5": (
            "T5Config",
            "T5ForConditionalGeneration",
            {"vocab_size": 120, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2},
        ),
    }
    config, kind, shape = kinds[name]
    if name == "hf t5":
        shape = {**shape, "decoder_start_token_id": 0}

    def model() -> nn.Module:
        made = getattr(transformers, config)(**shape)
        made.use_cache = False
        return getattr(transformers, kind)(made)

    def loss(network: nn.Module, batch: Any) -> Tensor:
        labels = batch[0] if name != "hf bert" else batch[1]
        return network(input_ids=batch[0], attention_mask=torch.ones_like(batch[0]), labels=labels).loss

    return of(model, lambda: TensorDataset(torch.randint(3, 120, (64, 12)), torch.randint(2, (64,))), loss)


def lora(folder: Path) -> Recipe:
    """Adapters on a tiny Llama with random weights, which learn tokens that count up."""
    import transformers
    from safetensors.torch import save_file

    shape = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {"intermediate_size": 64, "max_position_embeddings": 64, "num_key_value_heads": 1}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).save_pretrained(folder / "base")
    rows = (torch.arange(64)[:, None] + torch.arange(12)) % 120
    save_file({"input_ids": rows, "labels": rows.clone()}, folder / "rows.safetensors")
    small = ["method=lora", "rank=4", "context=12", "micro_batch_size=4", "max_steps=20", "lr=0.01"]
    return load_recipe("finetune", [f"model={folder}/base", f"data={folder}/rows.safetensors", *small])


TEXT = ["context=256", "max_steps=30", "micro_batch_size=2"]


def recipes(folder: Path) -> dict[str, Callable[[], Recipe]]:
    """Each model by name. `folder` keeps what a recipe reads."""
    found: dict[str, Callable[[], Recipe]] = {
        "gpt": lambda: load_recipe("gpt", [*TEXT, "layers=2", "width=64", "heads=2", "global_batch_tokens=512"]),
        "llama": lambda: load_recipe("llama", [*TEXT, "layers=2"]),
        "sentiment": lambda: load_recipe("sentiment", ["max_steps=20"]),
        "vae": vae,
        "packed lstm tagger": tagger,
        "encoder-decoder, dicts": translator,
    }
    if Path(FASHION).is_dir():
        found["fashion"] = lambda: load_recipe("fashion", ["max_steps=100"])
    for name in ("hf bert", "hf gpt2", "hf llama", "hf t5"):
        found[name] = lambda name=name: of_transformers(name)  # type: ignore[misc]
    found["llama with lora"] = lambda: lora(folder)
    return found
