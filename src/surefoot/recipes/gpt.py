"""gpt: a decoder-only transformer that predicts the next token of text.

By default it learns from the Python standard library's own sources, byte by byte, which every machine has;
with `corpus=FOLDER` from a folder of text files, or from the tokens that `surefoot data tokenize` made of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surefoot import Recipe
from surefoot.data.formats import is_corpus, open_corpus
from surefoot.data.packing import IGNORED, PackedDocuments
from surefoot.data.text import BYTE_VOCABULARY, byte_windows, text_source
from surefoot.data.windows import TokenWindows
from surefoot.errors import RecipeError
from surefoot.recipe.ranges import Count, Layers, Rate
from surefoot.records.manifest import HELD_OUT
from surefoot.techniques.schedule import warmup_cosine


class Attention(nn.Module):
    """The weights of a head lie together, so that under tensor parallel a rank has some of the heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (-1, 3, self.head_width)).permute(3, 0, 2, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=seen is None)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
        )

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), seen)
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(self._initialise)
        for name, weight in self.blocks.named_parameters():
            if name.endswith(("attention.out.weight", "mlp.2.weight")):  # what is added to the residual stream
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5)  # shrinks with the depth
        self.head.weight = self.token.weight

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor, positions: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        places = self.position.weight[: tokens.shape[1]] if positions is None else self.position(positions)
        x = self.token(tokens) + places
        seen = None if documents is None else same_document(documents)
        for block in self.blocks:
            x = block(x, seen)
        return self.head(self.norm(x))


def same_document(documents: Tensor) -> Tensor:
    """Which tokens a token sees: those before it in its own document, and itself."""
    return (documents[:, None, :, None] == documents[:, None, None, :]).tril()


def next_token_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | int]:
    """Of windows, every target counts; of packed documents, those that are not `IGNORED`."""
    tokens, targets, *where = batch
    logits = model(tokens, *where)
    count = (targets != IGNORED).sum() if where else targets.numel()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=IGNORED), count


def tensor_plan(model: nn.Module) -> dict[str, Any]:
    """Which part of each weight a rank of a tensor-parallel group holds; norms and positions are the same on all."""
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
    layers: Layers = 4,
    width: Count = 256,
    heads: Count = 4,
    context: Count = 256,
    micro_batch_size: Count = 8,
    global_batch_tokens: Count = 8192,
    lr: Rate = 1e-3,
    max_steps: Count = 500,
    corpus: str = "stdlib",
    packed: bool = False,
) -> Recipe:
    if width % heads:
        raise RecipeError(f"width={width} does not divide into heads={heads}")
    if is_corpus(corpus):
        train = open_corpus(corpus).only("train")
        vocabulary, about = train.manifest.vocabulary, f"the next of {train.manifest.tokens:,} tokens in {corpus}"
        data: Callable[[], Any] = partial(PackedDocuments if packed else TokenWindows, train, context)
        held_out = open_corpus(corpus).only(HELD_OUT)
        evaluation = partial(TokenWindows, held_out, context) if held_out.manifest.shards else None
        bytes_per_token = held_out.manifest.bytes_per_token
    else:
        vocabulary, about = BYTE_VOCABULARY, f"the next byte, from {text_source(corpus)}"
        data = partial(byte_windows, corpus, context)
        evaluation, bytes_per_token = None, None
    if not vocabulary:
        raise RecipeError(f"{corpus} does not say its vocabulary; surefoot data verify --adopt --vocabulary N notes it")
    return Recipe(
        model=lambda: GPT(vocabulary, layers, width, heads, context),
        data=data,
        evaluation=evaluation,
        evaluate_every=max(1, max_steps // 10) if evaluation else None,
        bytes_per_token=bytes_per_token,
        loss=next_token_loss,
        tensor_plan=tensor_plan,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=warmup_cosine(warmup_steps=20),
        micro_batch_size=micro_batch_size,
        tokens_per_sample=context,
        global_batch_tokens=global_batch_tokens,
        max_grad_norm=1.0,
        max_steps=max_steps,
        about=about,
    )
