"""Arithmetic told as text: a decoder with rotary positions as a recipe; only answers bear loss, rows are padded."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from surefoot import Recipe

PAD, EQUALS, STOP, DIGIT = 0, 1, 2, 3
VOCABULARY, LENGTH = 13, 12


class Sums(Dataset):
    """a b c = answer stop, where the answer is written twice; padded on the right."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.rows = torch.full((count, LENGTH + 1), PAD)
        self.bears = torch.zeros(count, LENGTH + 1, dtype=torch.bool)
        for row, bears in zip(self.rows, self.bears, strict=True):
            terms = torch.randint(0, 10, (int(torch.randint(5, 9, (), generator=generator)),), generator=generator)
            last = DIGIT + terms[-1:]
            text = torch.cat([DIGIT + terms, torch.tensor([EQUALS]), last, last, torch.tensor([STOP])])
            row[: len(text)] = text
            bears[len(terms) + 1 : len(text)] = True

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        row, bears = self.rows[index], self.bears[index]
        targets = row[1:].masked_fill(~bears[1:], -100)
        return {"tokens": row[:-1], "targets": targets}


def rotate(x: Tensor) -> Tensor:
    """Rotary positions over the last dimension."""
    length, half = x.shape[-2], x.shape[-1] // 2
    angles = torch.arange(length)[:, None] * 100.0 ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.05)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.inputs(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = rotate(heads[0]), rotate(heads[1]), heads[2]
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.dropout(self.output(mixed.transpose(1, 2).reshape(batch, length, width)))
        hidden = self.between(x)
        return x + self.dropout(self.down(F.silu(self.gate(hidden)) * self.up(hidden)))


class Decoder(nn.Module):
    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.last = nn.RMSNorm(width)
        self.vocabulary = nn.Linear(width, VOCABULARY, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.vocabulary.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.vocabulary(self.last(x))


def answer_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    targets = batch["targets"].flatten()
    logits = model(batch["tokens"]).flatten(0, 1)
    return F.cross_entropy(logits, targets, reduction="sum"), (targets != -100).sum()


def sums(layers: int = 2, width: int = 32, heads: int = 4, lr: float = 3e-3) -> Recipe:
    return Recipe(
        model=lambda: Decoder(layers, width, heads),
        data=lambda: Sums(400, seed=11),
        evaluation=lambda: Sums(40, seed=12),
        loss=answer_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.02),
        micro_batch_size=8,
        tokens_per_sample=LENGTH,
        global_batch_tokens=16 * LENGTH,
        max_grad_norm=1.0,
        max_steps=60,
        evaluate_every=30,
        decay="matrices",
    )
