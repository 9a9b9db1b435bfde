"""llama: Llama 3 in any of its published sizes, and a tiny one that trains on a CPU.

The sizes are those of "The Llama 3 Herd of Models" (https://arxiv.org/abs/2407.21783, table 3). Without `corpus`, it
learns from the bytes of the Python standard library's sources; a published size still keeps its own vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surefoot import Recipe
from surefoot.data.formats import is_corpus, open_corpus
from surefoot.data.text import BYTE_VOCABULARY, byte_windows, text_source
from surefoot.data.windows import TokenWindows
from surefoot.errors import RecipeError
from surefoot.recipe.context_part import ContextPart
from surefoot.recipe.ranges import Count, CountOrNone, LayersOrNone
from surefoot.techniques.schedule import warmup_cosine


@dataclass(frozen=True)
class Shape:
    """The dimensions and the learning rate of one Llama."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    context: int
    lr: float


Turns = tuple[Tensor, ...]
"""Cosines and sines of positions."""

SHAPES = {
    "tiny": Shape(4, 256, 8, 4, 704, BYTE_VOCABULARY, 256, 1e-3),
    "8b": Shape(32, 4096, 32, 8, 14336, 128256, 8192, 3e-4),
    "70b": Shape(80, 8192, 64, 8, 28672, 128256, 8192, 1.5e-4),
    "405b": Shape(126, 16384, 128, 8, 53248, 128256, 8192, 8e-5),
}


class Attention(nn.Module):
    """Several query heads share a key and value head. With tensor parallelism, each rank gets some of the heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_width = shape.width // shape.heads
        self.query = nn.Linear(shape.width, shape.heads * self.head_width, bias=False)
        self.key = nn.Linear(shape.width, shape.kv_heads * self.head_width, bias=False)
        self.value = nn.Linear(shape.width, shape.kv_heads * self.head_width, bias=False)
        self.out = nn.Linear(shape.heads * self.head_width, shape.width, bias=False)

    def forward(self, x: Tensor, turns: Turns) -> Tensor:
        q, k, v = (self._heads(of(x)) for of in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(turned(q, turns), turned(k, turns), v, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.attention = Attention(shape)
        self.mlp_norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, turns: Turns) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turns)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    turns: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.register_buffer("turns", rotations(shape.context, shape.width // shape.heads), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:  # weights that add to the residual stream are smaller in deeper models
                last = name.endswith(("attention.out.weight", "mlp.down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * shape.layers) ** 0.5 if last else 0.02)

    def forward(self, tokens: Tensor, start: int = 0, positions: Tensor | None = None) -> Tensor:
        """`start` is the number of tokens before these, whose keys and values were kept."""
        x = self.token(tokens)
        here = slice(start, start + tokens.shape[1]) if positions is None else positions
        turns = tuple(each[here] for each in self.turns)  # torch.export keeps lengths free
        for block in self.blocks:
            x = block(x, turns)
        return self.head(self.norm(x))


def rotations(context: int, head_width: int, base: float = 500_000.0) -> Tensor:
    """Cosines and sines of the angle by which each position rotates each pair of numbers in a head."""
    speeds = base ** (-torch.arange(0, head_width, 2).float() / head_width)
    angles = torch.outer(torch.arange(context).float(), speeds).repeat(1, 2)
    return torch.stack((angles.cos(), angles.sin()))


def turned(x: Tensor, turns: Turns) -> Tensor:
    """Rotary position embedding. The two numbers of a pair are half a head apart."""
    cosines, sines = (each.to(x.dtype) for each in turns)
    left, right = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-right, left), dim=-1) * sines


def next_token_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, int]:
    """With context parallelism, a batch also has the positions of its tokens."""
    tokens, targets, *positions = batch
    logits = model(tokens, positions=positions[0]) if positions else model(tokens)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"), targets.numel()


def context_plan(batch: tuple[Tensor, Tensor], part: ContextPart) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens of a rank, their targets and their positions."""
    tokens, targets = batch
    return part.cut(tokens), part.cut(targets), part.positions(tokens)


def tensor_plan(model: nn.Module) -> dict[str, Any]:
    """How tensor parallelism splits each weight, and how activations pass between ranks.

    Between products the sequence is split, so that each rank computes only its part of norms and residuals.
    """
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
    )

    cut, whole = Shard(1), Replicate()
    columns, rows = ColwiseParallel(), RowwiseParallel(output_layouts=cut)
    return {
        "token": RowwiseParallel(input_layouts=whole, output_layouts=cut),
        "blocks.*.attention_norm": SequenceParallel(),
        "blocks.*.attention": PrepareModuleInput(input_layouts=(cut, None), desired_input_layouts=(whole, None)),
        "blocks.*.attention.query": columns,
        "blocks.*.attention.key": columns,
        "blocks.*.attention.value": columns,
        "blocks.*.attention.out": rows,
        "blocks.*.mlp_norm": SequenceParallel(),
        "blocks.*.mlp": PrepareModuleInput(input_layouts=(cut,), desired_input_layouts=(whole,)),
        "blocks.*.mlp.gate": columns,
        "blocks.*.mlp.up": columns,
        "blocks.*.mlp.down": rows,
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=cut, output_layouts=whole),
    }


def llama(
    size: Literal["tiny", "8b", "70b", "405b"] = "tiny",
    context: CountOrNone = None,
    layers: LayersOrNone = None,
    micro_batch_size: CountOrNone = None,
    max_steps: Count = 500,
    corpus: str = "stdlib",
) -> Recipe:
    shape, small = SHAPES[size], size == "tiny"
    vocabulary = shape.vocabulary
    data: Callable[[], Any] = partial(byte_windows, corpus, context or shape.context)
    about = f"the next byte, from {text_source(corpus)}"
    if is_corpus(corpus):
        train = open_corpus(corpus).only("train")
        vocabulary = train.manifest.vocabulary
        data = partial(TokenWindows, train, context or shape.context)
        about = f"the next of {train.manifest.tokens:,} tokens in {corpus}"
        if not vocabulary:
            raise RecipeError(f"{corpus} states no vocabulary; set it: surefoot data verify --adopt --vocabulary N")
    changed = {"vocabulary": vocabulary, "context": context or shape.context, "layers": layers or shape.layers}
    shape = Shape(**{**vars(shape), **changed})
    return Recipe(
        model=lambda: Llama(shape),
        data=data,
        loss=next_token_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=shape.lr, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=warmup_cosine(warmup_steps=20 if small else 2000),
        micro_batch_size=micro_batch_size or (8 if small else 1),
        tokens_per_sample=shape.context,
        max_grad_norm=1.0,
        max_steps=max_steps,
        precision="32-true" if small else "bf16-mixed",
        recompute="none" if small else "full",
        decay="matrices",
        tensor_plan=tensor_plan,
        context_plan=context_plan,
        about=about,
    )
