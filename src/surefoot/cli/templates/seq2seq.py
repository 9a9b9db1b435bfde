"""An encoder and a decoder that learn to reverse digits, as a recipe: surefoot plans, checks, trains and exports it."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from surefoot import Recipe

START = 10  # the token that the decoder is given before its first digit
TOKENS = 11


def reversals(samples: int, length: int) -> TensorDataset:
    """Your pairs go here: a source, what the decoder is given, and what it should answer.

    Draw from torch's global generator without seeding it: surefoot seeds it before it calls you, so that a resumed run
    sees the same samples.
    """
    source = torch.randint(0, 10, (samples, length))
    target = source.flip(1)
    given = torch.cat([torch.full((samples, 1), START), target[:, :-1]], dim=1)  # the answer, one place later
    return TensorDataset(source, given, target)


class Translator(nn.Module):
    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(TOKENS, width), nn.Embedding(length, width)
        block: dict[str, Any] = {"nhead": 4, "dropout": 0.0, "batch_first": True, "norm_first": True}
        block["dim_feedforward"] = 4 * width
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(width, **block) for _ in range(layers))
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(width, **block) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, TOKENS)

    def forward(self, source: Tensor, given: Tensor) -> Tensor:
        read, said = self._embed(source), self._embed(given)
        for block in self.encoder:
            read = block(read)
        # The decoder reads the whole source, but of the answer only what comes before the place it is at.
        length = given.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=given.device).triu(1)
        for block in self.decoder:
            said = block(said, read, tgt_mask=future, tgt_is_causal=True)
        return self.head(self.norm(said))

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.token(tokens) + self.position.weight[: tokens.shape[1]]


def answer_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, int]:
    """A sum and its count, not a mean: surefoot divides once per step, so the size of a micro-batch changes nothing."""
    source, given, target = batch
    logits = model(source, given)
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum"), target.numel()


# The parameters are the knobs: `surefoot train FILE length=12`.
def seq2seq(length: int = 8, width: int = 64, layers: int = 1, lr: float = 2e-3) -> Recipe:
    return Recipe(
        model=lambda: Translator(width, layers, length),
        data=lambda: reversals(20_000, length),
        evaluation=lambda: reversals(500, length),  # held-out pairs that training never sees
        evaluate_every=100,
        loss=answer_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=64,
        tokens_per_sample=length,  # so that speed and cost are told by token
        max_grad_norm=1.0,
        max_steps=300,
        about=f"{length} digits, reversed",
    )
