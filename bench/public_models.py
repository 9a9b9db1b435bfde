"""Models of published runs, each with the operators that its framework executes.

What a framework keeps for backward depends on how it writes a norm or a LoRA layer, so these follow the named
framework's order of operations: litgpt's decoder (LoRA, adapters, 4-bit weights), torchtune's Llama, a vision
transformer as timm writes it. BERT comes from transformers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

# ------------------------------------------------------------------------------------------- litgpt: shapes


@dataclass(frozen=True)
class Shape:
    """A decoder as litgpt's config.py describes it."""

    layers: int
    width: int
    heads: int
    ffn: int
    vocabulary: int
    groups: int = 0
    head: int = 0
    norm: str = "rms"
    mlp: str = "silu"
    parallel: bool = False
    shared_norm: bool = False
    rotary: float = 1.0
    bias: bool = False
    head_bias: bool = False
    scaled_embedding: bool = False
    softcaps: bool = False

    @property
    def head_size(self) -> int:
        return self.head or self.width // self.heads

    @property
    def query_groups(self) -> int:
        return self.groups or self.heads


_NEOX = {"norm": "layer", "mlp": "gelu", "parallel": True}
SHAPES = {
    "phi-1.5": Shape(24, 2048, 32, 8192, 51200, rotary=0.5, bias=True, head_bias=True, shared_norm=True, **_NEOX),
    "phi-2": Shape(32, 2560, 32, 10240, 51200, rotary=0.4, bias=True, head_bias=True, shared_norm=True, **_NEOX),
    "phi-3": Shape(32, 3072, 32, 8192, 32064),
    "stablelm-3b": Shape(16, 4096, 32, 16384, 50688, rotary=0.25, bias=True, **_NEOX),
    "llama-2-7b": Shape(32, 4096, 32, 11008, 32000),
    "llama-2-13b": Shape(40, 5120, 40, 13824, 32000),
    "llama-3-8b": Shape(32, 4096, 32, 14336, 128256, groups=8),
    "llama-3.2-1b": Shape(16, 2048, 32, 8192, 128256, groups=8),
    "llama-3.2-3b": Shape(28, 3072, 24, 8192, 128256, groups=8),
    "falcon-7b": Shape(32, 4544, 71, 18176, 65024, groups=1, shared_norm=True, **_NEOX),
    "falcon-40b": Shape(60, 8192, 128, 32768, 65024, groups=8, **_NEOX),
    "gemma-2b": Shape(18, 2048, 8, 16384, 256000, groups=1, head=256, mlp="gelu-gated", scaled_embedding=True),
    "gemma-7b": Shape(28, 3072, 16, 24576, 256000, head=256, mlp="gelu-gated", scaled_embedding=True),
    "gemma-2-2b": Shape(
        26, 2304, 8, 9216, 256000, groups=4, head=256, mlp="gelu-gated", scaled_embedding=True, softcaps=True
    ),
    "gemma-2-9b": Shape(
        42, 3584, 16, 14336, 256000, groups=8, head=256, mlp="gelu-gated", scaled_embedding=True, softcaps=True
    ),
    "mistral-7b": Shape(32, 4096, 32, 14336, 32000, groups=8),
    "tinyllama-1.1b": Shape(22, 2048, 32, 5632, 32000, groups=4),
}


@dataclass(frozen=True)
class Tuning:
    """What is trained, and how the frozen weights are kept."""

    rank: int = 0
    qkv: tuple[bool, bool, bool] = (True, False, True)
    everywhere: bool = False
    dropout: float = 0.05
    weights: str = "bf16"
    adapter: int = 0
    """0 for none, else LLaMA-Adapter version 1 or 2."""

    @property
    def full(self) -> bool:
        return not self.rank and not self.adapter


# ------------------------------------------------------------------------------------------- 4-bit weights


class _FourBit(torch.autograd.Function):
    """bitsandbytes' MatMul4Bit up to 0.43.1: the weight is made anew in forward and in backward, the input is kept.

    It is kept as an attribute, which backward does not free: it stays until the graph is gone. Lightning Fabric
    quantises from float16, so the weight comes back in float16 and is then cast.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, bias: Tensor | None, rows: int) -> Tensor:
        ctx.tensors = (x, packed)
        ctx.rows, ctx.columns = rows, x.shape[-1]
        return F.linear(x, torch.empty(rows, ctx.columns, dtype=torch.float16).to(x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        weight = torch.empty(ctx.rows, ctx.columns, dtype=torch.float16).to(grads[0].dtype)
        return grads[0] @ weight, None, None, None


class FourBitLinear(nn.Module):
    """A frozen weight in nf4: half a byte per number, and a scale per 64 of them; `-dq` quantises the scales too."""

    def __init__(self, columns: int, rows: int, bias: bool, kind: str) -> None:
        super().__init__()
        blocks = rows * columns // 64
        self.rows = rows
        self.packed = nn.Parameter(torch.empty(rows * columns // 2, dtype=torch.uint8), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(rows)) if bias else None
        if kind == "nf4-dq":
            self.register_buffer("scales", torch.empty(blocks, dtype=torch.uint8))
            self.register_buffer("scales_of_scales", torch.empty(blocks // 256 + 1, dtype=torch.float32))
        else:
            self.register_buffer("scales", torch.empty(blocks, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return _FourBit.apply(x, self.packed, self.bias, self.rows)


def frozen_linear(columns: int, rows: int, bias: bool, how: Tuning) -> nn.Module:
    if how.weights != "bf16":
        return FourBitLinear(columns, rows, bias, how.weights)
    return nn.Linear(columns, rows, bias=bias)


# ------------------------------------------------------------------------------------------- litgpt: layers


class Low(nn.Module):
    """A linear layer, with a low-rank one beside it where that is trained."""

    def __init__(self, columns: int, rows: int, bias: bool, how: Tuning, adapted: bool) -> None:
        super().__init__()
        self.linear = frozen_linear(columns, rows, bias, how)
        self.rank = how.rank if adapted else 0
        if self.rank:
            self.dropout = nn.Dropout(how.dropout)
            self.low_a = nn.Parameter(torch.empty(self.rank, columns))
            self.low_b = nn.Parameter(torch.empty(rows, self.rank))
        if how.adapter == 2:
            self.adapter_bias = nn.Parameter(torch.zeros(rows))
            self.adapter_scale = nn.Parameter(torch.ones(rows))
        self.adapter = how.adapter

    def forward(self, x: Tensor) -> Tensor:
        if self.adapter == 2:
            return self.adapter_scale * (self.linear(x) + self.adapter_bias)
        plain = self.linear(x)
        if not self.rank:
            return plain
        return plain + (self.dropout(x) @ self.low_a.transpose(0, 1) @ self.low_b.transpose(0, 1)) * 2.0


class LowQkv(nn.Module):
    """Queries, keys and values in one product; the low-rank part by a grouped convolution, padded with zeros."""

    def __init__(self, shape: Shape, how: Tuning) -> None:
        super().__init__()
        self.heads, self.groups = shape.heads, shape.query_groups
        rows = (self.heads + 2 * self.groups) * shape.head_size
        self.rows, self.enabled = rows, how.qkv
        self.linear = frozen_linear(shape.width, rows, shape.bias, how)
        sizes = [shape.head_size * count for count in (self.heads, self.groups, self.groups)]
        self.sizes = [size for size, on in zip(sizes, how.qkv, strict=True) if on]
        self.dropout = nn.Dropout(how.dropout)
        self.low_a = nn.Parameter(torch.empty(how.rank * sum(how.qkv), shape.width))
        self.low_b = nn.Parameter(torch.empty(sum(self.sizes), how.rank))
        self.register_buffer("places", torch.arange(sum(self.sizes)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        plain = self.linear(x)
        after_a = F.linear(self.dropout(x), self.low_a)
        low = self._convolved(after_a.transpose(-2, -1), self.low_b.unsqueeze(-1)).transpose(-2, -1)
        return plain + self._padded(low) * 2.0

    def _convolved(self, x: Tensor, weight: Tensor) -> Tensor:
        if self.heads == self.groups:
            return F.conv1d(x, weight, groups=sum(self.enabled))
        parts = zip(x.chunk(sum(self.enabled), dim=1), weight.split(self.sizes), strict=True)
        return torch.cat([F.conv1d(part, its_weight) for part, its_weight in parts], dim=1)

    def _padded(self, low: Tensor) -> Tensor:
        if all(self.enabled):
            return low
        low = low.transpose(0, 1)
        zeros = low.new_zeros((*low.shape[:-1], self.rows)).view(-1, self.rows)
        placed = zeros.index_copy(1, self.places, low.reshape(-1, sum(self.sizes)))
        return placed.view(*low.shape[:-1], self.rows).transpose(0, 1)


class RmsNorm(nn.Module):
    """Root mean square in float32, by elementwise operators."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        mean = torch.mean(wide * wide, dim=-1, keepdim=True)
        return (wide * torch.rsqrt(mean + 1e-5)).to(x.dtype) * self.weight


def rope(length: int, width: int) -> tuple[Tensor, Tensor]:
    angles = torch.outer(torch.arange(length).float(), torch.rand(width // 2)).repeat(1, 2)
    return torch.cos(angles), torch.sin(angles)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return ((x * cos) + (turned * sin)).to(dtype=x.dtype)


class Attention(nn.Module):
    def __init__(self, shape: Shape, how: Tuning, index: int) -> None:
        super().__init__()
        self.shape, self.how = shape, how
        rows = (shape.heads + 2 * shape.query_groups) * shape.head_size
        self.qkv = LowQkv(shape, how) if how.rank else Low(shape.width, rows, shape.bias, how, False)
        inner = shape.heads * shape.head_size
        self.project = Low(inner, shape.width, shape.bias, how, how.everywhere)
        self.prompted = bool(how.adapter) and index >= 2
        if self.prompted:
            self.adapter_prompt = nn.Embedding(10, shape.width)
            self.adapter_gate = nn.Parameter(torch.zeros(1, 1, shape.heads, 1))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.size()
        q, k, v = self._split(self.qkv(x), batch, length)
        turned = cos.size(-1)
        q, k = (torch.cat((rotate(y[..., :turned], cos, sin), y[..., turned:]), dim=-1) for y in (q, k))
        y = self._attend(q, k, v)
        if self.prompted:
            y = y + self.adapter_gate * self._prompted(q, x)
        return self.project(y.reshape(batch, length, -1))

    def _split(self, qkv: Tensor, batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        groups, size = self.shape.query_groups, self.shape.head_size
        each = self.shape.heads // groups
        qkv = qkv.view(batch, length, groups, each + 2, size).permute(0, 2, 3, 1, 4)
        q, k, v = qkv.split((each, 1, 1), dim=2)
        if groups != self.shape.heads:
            k, v = (y.expand(batch, groups, each, length, size) for y in (k, v))
        q, k, v = (y.reshape(batch, -1, length, size) for y in (q, k, v))
        return q, k, v

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale = 1 / math.sqrt(q.size(-1))
        if not self.shape.softcaps:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale).transpose(1, 2)
        scores = torch.tanh(q @ k.mT * scale / 50.0) * 50.0
        mask = torch.ones(q.size(2), q.size(2), dtype=q.dtype).triu(diagonal=1)
        scores = F.softmax(scores + mask, dim=-1, dtype=torch.float).to(dtype=q.dtype)
        return (scores @ v).transpose(1, 2)

    def _prompted(self, q: Tensor, x: Tensor) -> Tensor:
        _, k, v = self._split(self.qkv(self.adapter_prompt.weight.unsqueeze(0)), 1, 10)
        mask = torch.ones(q.size(2), 10, dtype=torch.bool)
        k, v = (y.expand(q.size(0), *y.shape[1:]) for y in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


class Mlp(nn.Module):
    def __init__(self, shape: Shape, how: Tuning) -> None:
        super().__init__()
        self.kind = shape.mlp
        into, out = (shape.width, shape.ffn, shape.bias), (shape.ffn, shape.width, shape.bias)
        self.first = Low(*into, how, how.everywhere)
        self.gate = Low(*into, how, how.everywhere) if shape.mlp != "gelu" else None
        self.project = Low(*out, how, how.everywhere)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        if self.gate is None:
            return self.project(F.gelu(first))
        gate = self.gate(x)
        return self.project((F.silu(first) if self.kind == "silu" else F.gelu(first, approximate="tanh")) * gate)


class Block(nn.Module):
    def __init__(self, shape: Shape, how: Tuning, index: int) -> None:
        super().__init__()
        make = norm_maker(shape)
        self.parallel = shape.parallel
        self.norm_1, self.norm_2 = make(), None if shape.shared_norm else make()
        self.attention, self.mlp = Attention(shape, how, index), Mlp(shape, how)
        self.after_attention, self.after_mlp = (make() if shape.softcaps else nn.Identity() for _ in range(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed = self.norm_1(x)
        attended = self.after_attention(self.attention(normed, cos, sin))
        if self.parallel:
            normed = normed if self.norm_2 is None else self.norm_2(x)
            return self.mlp(normed) + attended + x
        x = attended + x
        return self.after_mlp(self.mlp(self.norm_2(x))) + x


def norm_maker(shape: Shape) -> Callable[[], nn.Module]:
    kind = RmsNorm if shape.norm == "rms" else nn.LayerNorm
    return lambda: kind(shape.width)


class Decoder(nn.Module):
    """litgpt's GPT: frozen but for what is tuned. Lightning Fabric turns what it returns into float32."""

    def __init__(self, shape: Shape, how: Tuning, context: int) -> None:
        super().__init__()
        self.scale = shape.width**0.5 if shape.scaled_embedding else None
        self.softcaps = shape.softcaps
        self.head = Low(shape.width, shape.vocabulary, shape.head_bias, how, how.everywhere)
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape, how, index) for index in range(shape.layers))
        self.norm = norm_maker(shape)()
        cos, sin = rope(context, int(shape.rotary * shape.head_size))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        if not how.full:
            for name, parameter in self.named_parameters():
                tuned = any(word in name for word in ("low_", "adapter_"))
                parameter.requires_grad = tuned or (how.adapter == 2 and ("norm" in name or "bias" in name))

    def forward(self, tokens: Tensor, chunk: int = 0) -> Tensor | list[Tensor]:
        x = self.token(tokens)
        x = x if self.scale is None else x * self.scale
        for block in self.blocks:
            x = block(x, self.cos[: tokens.size(1)], self.sin[: tokens.size(1)])
        x = self.norm(x)
        if chunk:
            return [part.float() for part in [self.head(part) for part in x.split(chunk, dim=1)]]
        return self.head(x).float()


def chunked_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """litgpt's fine-tuning loss: the head and the loss over 128 positions at a time.

    Its loop holds the logits in a variable, so they outlive backward, and with them what their graph keeps. They are
    let go when the next forward has ended. Here they go before it: the longest batch comes first.
    """
    model.held = None
    return chunked_loss_of_like_batches(model, batch)


def chunked_loss_of_like_batches(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The same where the batch before was as long."""
    tokens, targets = batch
    model.held = model(tokens, chunk=128)
    logits = list(model.held)
    logits[-1] = logits[-1][..., :-1, :]
    parts = zip(logits, targets[..., 1:].split(logits[0].size(1), dim=1), strict=True)
    losses = [
        F.cross_entropy(each.reshape(-1, each.size(-1)), its.reshape(-1), reduction="none") for each, its in parts
    ]
    return torch.cat(losses).sum() / targets[..., 1:].numel()


def whole_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, targets = batch
    logits = model(tokens)
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))


# ------------------------------------------------------------------------------------------- torchtune


class TuneAttention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))

    def forward(self, x: Tensor, cache: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = turned(self.q(x).view(batch, length, self.heads, self.size), cache).transpose(1, 2)
        k = turned(self.k(x).view(batch, length, self.groups, self.size), cache)
        v = self.v(x).view(batch, length, self.groups, self.size)
        each = self.heads // self.groups
        k, v = (y.unsqueeze(3).expand(-1, -1, -1, each, -1).reshape(batch, length, -1, self.size) for y in (k, v))
        out = F.scaled_dot_product_attention(q, k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.out(out.transpose(1, 2).contiguous().view(batch, length, -1))


def turned(x: Tensor, cache: Tensor) -> Tensor:
    pairs = x.float().reshape(*x.shape[:-1], -1, 2)
    cache = cache[: x.size(1)].view(1, x.size(1), 1, pairs.size(3), 2)
    first = pairs[..., 0] * cache[..., 0] - pairs[..., 1] * cache[..., 1]
    second = pairs[..., 1] * cache[..., 0] + pairs[..., 0] * cache[..., 1]
    return torch.stack([first, second], -1).flatten(3).type_as(x)


class TuneBlock(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, ffn: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = RmsNorm(width), RmsNorm(width)
        self.attention = TuneAttention(width, heads, groups)
        self.gate, self.up = (nn.Linear(width, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x: Tensor, cache: Tensor) -> Tensor:
        x = self.attention(self.norm_1(x), cache) + x
        normed = self.norm_2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class TuneLlama(nn.Module):
    """torchtune's decoder with tied embeddings; its logits come out in float32."""

    def __init__(self, shape: Shape, context: int) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        blocks = (TuneBlock(shape.width, shape.heads, shape.query_groups, shape.ffn) for _ in range(shape.layers))
        self.blocks, self.norm = nn.ModuleList(blocks), RmsNorm(shape.width)
        self.register_buffer("cache", torch.rand(context, shape.head_size // 2, 2), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        for block in self.blocks:
            x = block(x, self.cache)
        return F.linear(self.norm(x), self.token.weight).float()


# ------------------------------------------------------------------------------------------- a vision transformer


class VisionBlock(nn.Module):
    """timm's block of DINOv2: layer scales, and a gated feed-forward in one product."""

    def __init__(self, width: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.into, self.out = nn.Linear(width, ffn), nn.Linear(ffn // 2, width)
        self.scale_1, self.scale_2 = (nn.Parameter(torch.ones(width)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_1(x)).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*qkv.unbind(0)).transpose(1, 2).reshape(batch, length, width)
        x = x + self.project(attended) * self.scale_1
        gate, up = self.into(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.out(F.silu(gate) * up) * self.scale_2


class VisionTransformer(nn.Module):
    """`vit_giant_patch14_dinov2`, its blocks recomputed in backward."""

    def __init__(self, *, layers: int, width: int, heads: int, ffn: int, patch: int, side: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, (side // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(VisionBlock(width, heads, ffn) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], dim=1) + self.places
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x)[:, 0])
