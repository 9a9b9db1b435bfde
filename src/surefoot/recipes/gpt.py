"""gpt: a decoder-only transformer that predicts the next token of text, from a minute on a laptop to GPT-2 XL.

By default it learns from the bytes of the Python standard library's sources, which every machine has. With
`corpus=FOLDER` it learns from a folder of text files, or from the tokens that `surefoot data tokenize` made.
`size` names a shape, and any other knob overrides it. A published size keeps its vocabulary unless a tokenised corpus
has another.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surefoot import Recipe
from surefoot.data.formats import is_corpus, open_corpus
from surefoot.data.packing import IGNORED, PackedDocuments
from surefoot.data.text import BYTE_VOCABULARY, byte_windows, text_source
from surefoot.data.windows import TokenWindows
from surefoot.errors import RecipeError
from surefoot.recipe.context_part import ContextPart
from surefoot.recipe.ranges import Count, CountOrNone, LayersOrNone, RateOrNone
from surefoot.records.manifest import HELD_OUT
from surefoot.techniques.schedule import warmup_cosine


@dataclass(frozen=True)
class Shape:
    """What one size differs in from another, and how it is trained."""

    layers: int
    width: int
    heads: int
    context: int
    lr: float
    batch_tokens: int | None
    max_steps: int
    vocabulary: int = BYTE_VOCABULARY
    gpt2: bool = False


def _gpt2(layers: int, width: int, heads: int, lr: float) -> Shape:
    """A published size: shapes from the GPT-2 paper (table 2) and its checkpoints, learning rates from table 2.1 of
    the GPT-3 paper (https://arxiv.org/abs/2005.14165), which has the same sizes; 600,000 steps as nanoGPT takes.

    Its batch is one micro-batch per rank unless `global_batch_tokens` says more: nanoGPT takes 491,520.
    """
    return Shape(layers, width, heads, 1024, lr, None, 600_000, vocabulary=50257, gpt2=True)


SHAPES = {
    "tiny": Shape(2, 128, 4, 128, 2e-3, 4096, 200),
    "small": Shape(4, 256, 4, 256, 1e-3, 8192, 500),
    "gpt2": _gpt2(12, 768, 12, 6e-4),
    "gpt2-medium": _gpt2(24, 1024, 16, 3e-4),
    "gpt2-large": _gpt2(36, 1280, 20, 2.5e-4),
    "gpt2-xl": _gpt2(48, 1600, 25, 2e-4),
}


class Attention(nn.Module):
    """The weights of a head are contiguous, so that with tensor parallelism each rank gets whole heads."""

    def __init__(self, width: int, heads: int, bias: bool = False) -> None:
        super().__init__()
        self.head_width = width // heads
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (-1, 3, self.head_width)).permute(3, 0, 2, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=seen is None)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, gpt2: bool = False) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, bias=gpt2)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias=gpt2),
            nn.GELU(approximate="tanh" if gpt2 else "none"),
            nn.Linear(4 * width, width, bias=gpt2),
        )

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), seen)
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """With `gpt2`, linear layers have biases and GELU is approximated, as published; dropout is left out."""

    def __init__(
        self, vocabulary: int, layers: int, width: int, heads: int, context: int, *, gpt2: bool = False
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, gpt2) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(self._initialise)
        for name, weight in self.blocks.named_parameters():
            if name.endswith(("attention.out.weight", "mlp.2.weight")):  # these add to the residual stream
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5)  # smaller in deeper models
        self.head.weight = self.token.weight

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(
        self, tokens: Tensor, positions: Tensor | None = None, documents: Tensor | None = None, start: int = 0
    ) -> Tensor:
        """`start` is the number of tokens before these, whose keys and values were kept."""
        here = slice(start, start + tokens.shape[1])
        places = self.position.weight[here] if positions is None else self.position(positions)
        x = self.token(tokens) + places
        seen = None if documents is None else same_document(documents)
        for block in self.blocks:
            x = block(x, seen)
        return self.head(self.norm(x))


def same_document(documents: Tensor) -> Tensor:
    """The attention mask: a token sees itself and the tokens before it in its own document."""
    return (documents[:, None, :, None] == documents[:, None, None, :]).tril()


def next_token_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | int]:
    """In windows every target counts; in packed documents, those that are not `IGNORED`."""
    tokens, targets, *where = batch
    logits = model(tokens, *where)
    count = (targets != IGNORED).sum() if len(where) > 1 else targets.numel()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=IGNORED), count


def context_plan(batch: tuple[Tensor, ...], part: ContextPart) -> tuple[Tensor, ...]:
    """The tokens of a rank, their targets and their positions."""
    tokens, targets, *where = batch
    if where:
        raise RecipeError("cp does not know packed documents: a token would see other documents; use packed=false")
    return part.cut(tokens), part.cut(targets), part.positions(tokens)


def tensor_plan(model: nn.Module) -> dict[str, Any]:
    """How tensor parallelism splits each weight. Norms and positions are the same on all ranks."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    return {
        "token": RowwiseParallel(input_layouts=Replicate()),
        "blocks.*.attention.qkv": ColwiseParallel(),
        "blocks.*.attention.out": RowwiseParallel(),
        "blocks.*.mlp.0": ColwiseParallel(),
        "blocks.*.mlp.2": RowwiseParallel(),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }


def gpt(
    size: Literal["tiny", "small", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"] = "tiny",
    layers: LayersOrNone = None,
    width: CountOrNone = None,
    heads: CountOrNone = None,
    context: CountOrNone = None,
    micro_batch_size: Count = 8,
    global_batch_tokens: CountOrNone = None,
    lr: RateOrNone = None,
    max_steps: CountOrNone = None,
    corpus: str = "stdlib",
    packed: bool = False,
) -> Recipe:
    given: dict[str, Any] = {"layers": layers, "width": width, "heads": heads, "context": context}
    given |= {"lr": lr, "max_steps": max_steps}
    shape = replace(SHAPES[size], **{name: value for name, value in given.items() if value is not None})
    if shape.width % shape.heads:
        raise RecipeError(f"width={shape.width} is not a multiple of heads={shape.heads}")
    if is_corpus(corpus):
        train = open_corpus(corpus).only("train")
        vocabulary, about = train.manifest.vocabulary, f"the next of {train.manifest.tokens:,} tokens in {corpus}"
        data: Callable[[], Any] = partial(PackedDocuments if packed else TokenWindows, train, shape.context)
        held_out = open_corpus(corpus).only(HELD_OUT)
        evaluation = partial(TokenWindows, held_out, shape.context) if held_out.manifest.shards else None
        bytes_per_token = held_out.manifest.bytes_per_token
    else:
        vocabulary, about = shape.vocabulary, f"the next byte, from {text_source(corpus)}"
        data = partial(byte_windows, corpus, shape.context)
        evaluation, bytes_per_token = None, None
    if not vocabulary:
        raise RecipeError(f"{corpus} states no vocabulary; set it: surefoot data verify --adopt --vocabulary N")
    return Recipe(
        model=lambda: GPT(vocabulary, shape.layers, shape.width, shape.heads, shape.context, gpt2=shape.gpt2),
        data=data,
        evaluation=evaluation,
        evaluate_every=max(1, shape.max_steps // 10) if evaluation else None,
        bytes_per_token=bytes_per_token,
        loss=next_token_loss,
        tensor_plan=tensor_plan,
        context_plan=context_plan,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=shape.lr, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=warmup_cosine(warmup_steps=2000 if shape.gpt2 else 20),
        micro_batch_size=micro_batch_size,
        tokens_per_sample=shape.context,
        global_batch_tokens=global_batch_tokens
        or _whole_micro_batches(shape.batch_tokens, micro_batch_size * shape.context),
        max_grad_norm=1.0,
        max_steps=shape.max_steps,
        precision="bf16-mixed" if shape.gpt2 else "32-true",
        decay="matrices" if shape.gpt2 else "all",
        about=about,
    )


def _whole_micro_batches(wanted: int | None, tokens: int) -> int | None:
    """The batch of a size in whole micro-batches, so that another context alone is never refused."""
    return None if wanted is None else max(1, round(wanted / tokens)) * tokens
