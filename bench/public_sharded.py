"""Models of published runs on many GPUs, each with the operators that its framework executes.

llm-foundry's MPT, the Llama that torchtitan and fms-fsdp write alike, and modded-nanogpt's GPT. Each returns its loss:
so the result of the sharded model is one number, and logits stay in the format that the framework gives to its loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from public_models import RmsNorm
from torch import Tensor, nn

# ------------------------------------------------------------------------------------------- llm-foundry


class FusedCrossEntropy(torch.autograd.Function):
    """flash-attn's: it keeps the logits and one float32 per token, and makes their gradient in one kernel."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        sums = logits.amax(dim=-1).float()
        ctx.save_for_backward(logits, sums, targets)
        return sums.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        logits, *_ = ctx.saved_tensors
        return logits * 1.0, None


class MptBlock(nn.Module):
    def __init__(self, width: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_1(x)).chunk(3, dim=2)
        q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2) for each in qkv)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Mpt(nn.Module):
    """Learned positions, tied embeddings, biases everywhere, layer norms in the format of the block."""

    def __init__(self, *, layers: int, width: int, heads: int, ffn: int, vocabulary: int, context: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(MptBlock(width, heads, ffn) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("places", torch.arange(context), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.token(tokens) + self.place(self.places)
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.token.weight)
        return FusedCrossEntropy.apply(logits.view(-1, logits.size(-1)), targets.view(-1)) / targets.numel()


# ------------------------------------------------------------------------------------------- torchtitan, fms-fsdp


@dataclass(frozen=True)
class LlamaShape:
    """Of Llama and its like; `head_norms` are Qwen 3's, of queries and keys."""

    layers: int
    width: int
    heads: int
    groups: int
    ffn: int
    vocabulary: int
    head: int = 128
    head_norms: bool = False
    holds_logits: bool = False
    """Whether the loop holds the logits in a variable through backward."""


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions by complex numbers, in float32."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles[None, : x.size(1), None]).flatten(3).type_as(x)


class LlamaBlock(nn.Module):
    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape = shape
        queries, keys = shape.heads * shape.head, shape.groups * shape.head
        self.norm_1, self.norm_2 = RmsNorm(shape.width), RmsNorm(shape.width)
        self.q, self.project = nn.Linear(shape.width, queries, bias=False), nn.Linear(queries, shape.width, bias=False)
        self.k, self.v = (nn.Linear(shape.width, keys, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(shape.width, shape.ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.ffn, shape.width, bias=False)
        norms = (RmsNorm(shape.head) if shape.head_norms else nn.Identity() for _ in range(2))
        self.q_norm, self.k_norm = norms

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        x = x + self._attended(self.norm_1(x), angles)
        normed = self.norm_2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))

    def _attended(self, x: Tensor, angles: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (each(x).view(batch, length, -1, self.shape.head) for each in (self.q, self.k, self.v))
        q, k = turned(self.q_norm(q), angles), turned(self.k_norm(k), angles)
        each = self.shape.heads // self.shape.groups
        if each > 1:
            k, v = (y[:, :, :, None].expand(-1, -1, -1, each, -1).reshape(q.shape) for y in (k, v))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.project(attended.transpose(1, 2).contiguous().view(batch, length, -1))


class Llama(nn.Module):
    """Embeddings that are not tied; the loss takes its logits in float32."""

    def __init__(self, shape: LlamaShape, context: int) -> None:
        super().__init__()
        self.holds_logits = shape.holds_logits
        self.held: Tensor | None = None
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(LlamaBlock(shape) for _ in range(shape.layers))
        self.norm, self.head = RmsNorm(shape.width), nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.register_buffer("angles", torch.ones(context, shape.head // 2, dtype=torch.complex64), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.token(tokens)
        for block in self.blocks:
            x = block(x, self.angles)
        logits = self.head(self.norm(x))
        if self.holds_logits:
            self.held = logits = logits.float()
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1))


# ------------------------------------------------------------------------------------------- modded-nanogpt


class SpeedrunBlock(nn.Module):
    """Norms without weights, rotary positions, six heads of 128, and a squared ReLU."""

    def __init__(self, width: int = 768, heads: int = 6) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.project = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        normed = F.rms_norm(x, (x.size(-1),))
        q, k, v = (each(normed).unflatten(-1, (self.heads, -1)) for each in (self.q, self.k, self.v))
        q, k = (self._turned(F.rms_norm(each, (each.size(-1),)), cosines, sines) for each in (q, k))
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(F.rms_norm(x, (x.size(-1),)))).square())

    def _turned(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=-1)
        return torch.cat((left * cosines + right * sines, right * cosines - left * sines), dim=-1).type_as(x)


class SpeedrunGpt(nn.Module):
    """Twelve blocks; logits in float32."""

    def __init__(self, *, tied: bool, context: int = 1024) -> None:
        super().__init__()
        self.token = nn.Embedding(50304, 768)
        self.blocks = nn.ModuleList(SpeedrunBlock() for _ in range(12))
        self.head = nn.Linear(768, 50304, bias=False)
        if tied:
            self.head.weight = self.token.weight
        for name in ("cosines", "sines"):
            self.register_buffer(name, torch.ones(context, 1, 64, dtype=torch.bfloat16), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.token(tokens)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines)
        logits = self.head(F.rms_norm(x, (x.size(-1),))).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Muon(torch.optim.Optimizer):
    """Five Newton-Schulz iterations for one in `each` of the blocks' matrices; Adam's arithmetic for embeddings."""

    def __init__(self, parameters: Iterable[nn.Parameter], *, each: int) -> None:
        super().__init__(parameters, {"lr": 1e-3})
        self.each = each

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        parameters = [each for group in self.param_groups for each in group["params"] if each.grad is not None]
        for index, parameter in enumerate(parameters):
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            momentum, update = state["momentum"], parameter.grad
            momentum.mul_(0.95).add_(update)
            if parameter.shape[0] == 50304:
                update = momentum / (update * update).sqrt_().add_(1e-8)
            elif index % self.each == 0:
                update = _orthogonal(update.add(momentum, alpha=0.95))
            parameter.add_(update.type_as(parameter), alpha=-1e-3)


def _orthogonal(matrix: Tensor) -> Tensor:
    x = matrix.bfloat16()
    x = x / (x.norm() + 1e-7)
    x = x.T if matrix.size(0) > matrix.size(1) else x
    for _ in range(5):
        square = x @ x.T
        twice = square @ x
        x = 3.4445 * x - 4.7750 * twice + 2.0315 * square @ twice
    return x.T if matrix.size(0) > matrix.size(1) else x
