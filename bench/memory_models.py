"""Models whose memory is planned and measured: small, but each with its own way of using memory.

Every model is a function that returns a `Recipe`; `surefoot plan bench/memory_models.py:unet recompute=full`
plans one of them. `recompute` is done inside the model: `full` keeps only the inputs of each block,
`selective` also the results of matrix products, convolutions and attention.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.data import TensorDataset

from surefoot import Recipe
from surefoot.errors import RecipeError

# Chosen before any prediction was compared, then diagnosed: the meters were tuned on these too, so they no
# longer count as held out. Held out are the models of memory_models_held_out.py: written before the booking
# of kernels' workspaces was committed, without sight of it, and not diagnosed.
FORMERLY_HELD_OUT = ("resnet", "lstm", "hf_t5", "routed_moe", "unet", "decoder", "audio")

aten = torch.ops.aten
KEPT_BY_SELECTIVE = [
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.convolution.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
]
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, foreach=False),
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, foreach=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, foreach=False),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=1e-3),
}


# ------------------------------------------------------------------------------------------- what is shared


def run(block: Callable[..., Tensor], *args: Tensor, recompute: str) -> Tensor:
    """Calls a block, or has it recomputed in backward."""
    if recompute == "none":
        return block(*args)
    return checkpoint(block, *args, **recomputation(recompute))


def recomputation(recompute: str) -> dict[str, Any]:
    """What `torch.utils.checkpoint.checkpoint` is told."""
    if recompute == "full":
        return {"use_reentrant": False}
    if recompute == "selective":
        kept = functools.partial(create_selective_checkpoint_contexts, KEPT_BY_SELECTIVE)
        return {"use_reentrant": False, "context_fn": kept}
    raise RecipeError(f"recompute={recompute!r} is not one of none, full, selective")


def tokens(samples: int, context: int, vocabulary: int) -> TensorDataset:
    """Random tokens and random targets; always the same ones."""
    made = torch.Generator().manual_seed(1)
    draw = functools.partial(torch.randint, vocabulary, (samples, context), generator=made)
    return TensorDataset(draw(), draw())


def labelled(samples: int, *shape: int, classes: int) -> TensorDataset:
    """Random inputs of a shape and random classes; always the same ones."""
    made = torch.Generator().manual_seed(1)
    x = torch.randn(samples, *shape, generator=made)
    return TensorDataset(x, torch.randint(classes, (samples,), generator=made))


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, targets = batch
    logits = model(x)
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum"), targets.numel()


def hf_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, targets = batch
    logits = model(input_ids=x).logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"), targets.numel()


def transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise RecipeError("this model comes from transformers; run `pip install transformers`") from error
    return transformers


def recomputing(model: Any, recompute: str) -> Any:
    """A Hugging Face model whose blocks are recomputed as it does that itself."""
    if recompute != "none":
        model.gradient_checkpointing_enable(recomputation(recompute))
    return model


# ------------------------------------------------------------------------------------------- deep linear


class DeepLinear(nn.Module):
    def __init__(self, width: int, layers: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = run(layer, x, recompute=self.recompute)
        return self.head(x)


def squared_error(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, y = batch
    return ((model(x) - y) ** 2).sum(), len(y)


def deep_linear(recompute: str = "none", optimizer: str = "adamw", width: int = 512, layers: int = 12) -> Recipe:
    def data() -> TensorDataset:
        made = torch.Generator().manual_seed(1)
        return TensorDataset(torch.randn(1024, width, generator=made), torch.randn(1024, 1, generator=made))

    return Recipe(
        model=lambda: DeepLinear(width, layers, recompute),
        data=data,
        loss=squared_error,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=256,
    )


# ------------------------------------------------------------------------------------------- convolutions


def conv_block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class CNN(nn.Module):
    """VGG-style: convolution, BatchNorm, ReLU, pooling, then dropout and linear layers."""

    def __init__(self, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        widths = [3, width, 2 * width, 4 * width]
        self.blocks = nn.ModuleList(conv_block(*pair) for pair in itertools.pairwise(widths))
        self.head = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * width * 16, 256), nn.ReLU(), nn.Linear(256, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = run(block, x, recompute=self.recompute)
        return self.head(x)


def cnn(recompute: str = "none", optimizer: str = "adamw", width: int = 32) -> Recipe:
    return Recipe(
        model=lambda: CNN(width, recompute),
        data=lambda: labelled(128, 3, 32, 32, classes=10),
        loss=class_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=32,
    )


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        shapes = [(1, 1, 1), (1, 1, 1), (1, 2, 2), (2, 2, 1), (2, 4, 2), (4, 4, 1)]
        self.blocks = nn.ModuleList(Residual(a * width, b * width, stride) for a, b, stride in shapes)
        self.head = nn.Linear(4 * width, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = run(block, x, recompute=self.recompute)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def resnet(recompute: str = "none", optimizer: str = "adamw", width: int = 32) -> Recipe:
    return Recipe(
        model=lambda: ResNet(width, recompute),
        data=lambda: labelled(64, 3, 64, 64, classes=100),
        loss=class_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=16,
    )


class Double(nn.Sequential):
    """Two convolutions with GroupNorm and SiLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        first = nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU()
        second = nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU()
        super().__init__(*first, *second)


class UNet(nn.Module):
    """Down by pooling, up by transposed convolution, and what was computed on the way down put beside it."""

    def __init__(self, width: int, depth: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        widths = [width * 2**level for level in range(depth + 1)]
        self.first = Double(3, width)
        self.down = nn.ModuleList(Double(a, b) for a, b in itertools.pairwise(widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, 2) for a in reversed(widths[:-1]))
        self.up = nn.ModuleList(Double(2 * a, a) for a in reversed(widths[:-1]))
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, kept = run(self.first, x, recompute=self.recompute), []
        for down in self.down:
            kept.append(x)
            x = run(down, F.max_pool2d(x, 2), recompute=self.recompute)
        for grow, up in zip(self.grow, self.up, strict=True):
            x = run(up, torch.cat([kept.pop(), grow(x)], dim=1), recompute=self.recompute)
        return self.last(x)


def denoising_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    image, noise = batch
    return F.mse_loss(model(image + noise), noise, reduction="sum"), image.numel()


def unet(recompute: str = "none", optimizer: str = "adamw", width: int = 32, depth: int = 2) -> Recipe:
    def data() -> TensorDataset:
        made = torch.Generator().manual_seed(1)
        return TensorDataset(*(torch.randn(16, 3, 64, 64, generator=made) for _ in range(2)))

    return Recipe(
        model=lambda: UNet(width, depth, recompute),
        data=data,
        loss=denoising_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=4,
    )


class Dilated(nn.Module):
    """A dilated convolution per channel and one across channels, as separable audio nets have them."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation, groups=width)
        self.norm = nn.GroupNorm(1, width)
        self.pointwise = nn.Conv1d(width, 2 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.glu(self.pointwise(F.gelu(self.norm(self.depthwise(x)))), dim=1)


class Audio(nn.Module):
    def __init__(self, width: int, layers: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.stem = nn.Conv1d(1, width, 16, stride=8)
        self.blocks = nn.ModuleList(Dilated(width, 2**layer) for layer in range(layers))
        self.head = nn.Linear(width, 35)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = run(block, x, recompute=self.recompute)
        return self.head(F.avg_pool1d(x, x.shape[-1]).squeeze(-1))


def audio(recompute: str = "none", optimizer: str = "adamw", width: int = 96, layers: int = 5) -> Recipe:
    return Recipe(
        model=lambda: Audio(width, layers, recompute),
        data=lambda: labelled(64, 1, 8000, classes=35),
        loss=class_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=8,
    )


# ------------------------------------------------------------------------------------------- transformers


class Attention(nn.Module):
    """Causal attention: torch's fused one, or scores, mask and softmax written out."""

    def __init__(self, width: int, heads: int, context: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        if not fused:
            self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
            mixed = scores.masked_fill(~self.mask, float("-inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), attention
        self.mlp_norm, self.mlp = nn.LayerNorm(width), mlp

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    def __init__(self, blocks: Iterable[nn.Module], width: int, vocabulary: int, context: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.token.weight, std=0.02)
        self.head.weight = self.token.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.token(x) + self.position(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = run(block, x, recompute=self.recompute)
        return self.head(self.norm(x))


def gelu_mlp(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))


def gpt(
    recompute: str,
    optimizer: str,
    *,
    mlp: Callable[[int], nn.Module] = gelu_mlp,
    fused: bool = True,
    layers: int = 4,
    heads: int = 4,
    width: int = 256,
    context: int = 128,
    vocabulary: int = 2048,
    micro_batch_size: int = 8,
) -> Recipe:
    def model() -> GPT:
        blocks = (Block(width, Attention(width, heads, context, fused), mlp(width)) for _ in range(layers))
        return GPT(blocks, width, vocabulary, context, recompute)

    return Recipe(
        model=model,
        data=lambda: tokens(64, context, vocabulary),
        loss=class_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=micro_batch_size,
        tokens_per_sample=context,
    )


def gpt_sdpa(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return gpt(recompute, optimizer)


def gpt_softmax(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return gpt(recompute, optimizer, fused=False)


def gpt2_124m(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    """GPT-2 small, at its full size and half its context."""
    shape = {"layers": 12, "heads": 12, "width": 768, "context": 512, "vocabulary": 50257}
    return gpt(recompute, optimizer, micro_batch_size=2, **shape)


class DenseMoE(nn.Module):
    """Every expert computes every token; the gate weighs their results."""

    def __init__(self, width: int, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(-1)
        hidden = F.silu(torch.einsum("btd,edh->ebth", x, self.up))
        return torch.einsum("ebth,ehd,bte->btd", hidden, self.down, weights)


class RoutedMoE(nn.Module):
    """Each token goes to two experts; how many tokens an expert gets depends on the values."""

    def __init__(self, width: int, experts: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        weights, chosen = self.gate(rows).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, slot = (chosen == number).nonzero(as_tuple=True)
            mixed = expert(rows[row]) * weights[row, slot, None]
            out.index_add_(0, row, mixed.to(out.dtype))
        return out.view_as(x)


def dense_moe(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return gpt(recompute, optimizer, mlp=DenseMoE, layers=3)


def routed_moe(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return replace(gpt(recompute, optimizer, mlp=RoutedMoE, layers=3), density=1 / 8)  # 8 experts, evenly used


class GroupedAttention(nn.Module):
    """Fewer keys than queries, and positions as rotations."""

    def __init__(self, width: int, heads: int, groups: int, context: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        frequencies = 10_000 ** (-torch.arange(0, self.size, 2) / self.size)
        angles = torch.arange(context)[:, None] * frequencies
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def rotate(self, x: Tensor) -> Tensor:
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat([a * self.cosine - b * self.sine, a * self.sine + b * self.cosine], -1).type_as(x)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q = self.query(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.key_value(x).view(batch, length, 2, self.groups, self.size).permute(2, 0, 3, 1, 4)
        q, k = self.rotate(q), self.rotate(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class DecoderBlock(nn.Module):
    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(width), GroupedAttention(width, 8, 2, context)
        self.mlp_norm, self.mlp = nn.RMSNorm(width), SwiGLU(width, 768)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """RMSNorm, rotary positions, grouped queries, SwiGLU, an untied head."""

    def __init__(self, layers: int, width: int, vocabulary: int, context: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.token = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, context) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.token(x)
        for block in self.blocks:
            x = run(block, x, recompute=self.recompute)
        return self.head(self.norm(x))


def decoder(recompute: str = "none", optimizer: str = "adamw", layers: int = 4, width: int = 256) -> Recipe:
    return Recipe(
        model=lambda: Decoder(layers, width, 2048, 128, recompute),
        data=lambda: tokens(64, 128, 2048),
        loss=class_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=8,
        tokens_per_sample=128,
    )


class VisionBlock(nn.Module):
    """With torch's own multi-head attention, and dropout."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(4 * width, width),
            nn.Dropout(0.1),
        )

    def forward(self, x: Tensor) -> Tensor:
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(self.mlp_norm(x))


class ViT(nn.Module):
    def __init__(self, layers: int, width: int, patch: int, side: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList(VisionBlock(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.position
        for block in self.blocks:
            x = run(block, x, recompute=self.recompute)
        return self.head(self.norm(x)[:, 0])


def vit(recompute: str = "none", optimizer: str = "adamw", layers: int = 4, width: int = 192) -> Recipe:
    return Recipe(
        model=lambda: ViT(layers, width, 8, 64, recompute),
        data=lambda: labelled(64, 3, 64, 64, classes=100),
        loss=class_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=16,
    )


# ------------------------------------------------------------------------------------------- recurrent


class Recurrent(nn.Module):
    """A language model of recurrent layers."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], width: int, layers: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.token = nn.Embedding(2048, width)
        self.layers = nn.ModuleList(kind(width, width, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(width, 2048)

    def forward(self, x: Tensor) -> Tensor:
        x = self.token(x)
        for layer in self.layers:
            x = run(lambda given, layer=layer: layer(given)[0], x, recompute=self.recompute)
        return self.head(x)


def recurrent(kind: type[nn.LSTM] | type[nn.GRU], recompute: str, optimizer: str, context: int) -> Recipe:
    return Recipe(
        model=lambda: Recurrent(kind, 256, 2, recompute),
        data=lambda: tokens(64, context, 2048),
        loss=class_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=16,
        tokens_per_sample=context,
    )


def lstm(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return recurrent(nn.LSTM, recompute, optimizer, context=64)


def gru(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return recurrent(nn.GRU, recompute, optimizer, context=32)


# ------------------------------------------------------------------------------------------- Hugging Face


def hf_llama(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    def model() -> nn.Module:
        hf = transformers()
        config = hf.LlamaConfig(
            vocab_size=2048,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            use_cache=False,
        )
        return recomputing(hf.LlamaForCausalLM(config), recompute)

    return Recipe(
        model=model,
        data=lambda: tokens(64, 128, 2048),
        loss=hf_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=8,
        tokens_per_sample=128,
    )


def hf_bert(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    def model() -> nn.Module:
        hf = transformers()
        config = hf.BertConfig(
            vocab_size=2048,
            hidden_size=256,
            intermediate_size=1024,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=128,
        )
        return recomputing(hf.BertForMaskedLM(config), recompute)

    return Recipe(
        model=model,
        data=lambda: tokens(64, 128, 2048),
        loss=hf_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=8,
        tokens_per_sample=128,
    )


def translation_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    source, target = batch
    logits = model(input_ids=source, decoder_input_ids=target[:, :-1], use_cache=False).logits
    wanted = target[:, 1:].flatten()
    return F.cross_entropy(logits.flatten(0, 1), wanted, reduction="sum"), wanted.numel()


def hf_t5(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    def model() -> nn.Module:
        hf = transformers()
        config = hf.T5Config(
            vocab_size=2048, d_model=256, d_kv=64, d_ff=512, num_layers=3, num_heads=4, use_cache=False
        )
        return recomputing(hf.T5ForConditionalGeneration(config), recompute)

    return Recipe(
        model=model,
        data=lambda: tokens(64, 96, 2048),
        loss=translation_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=8,
        tokens_per_sample=96,
    )


# ------------------------------------------------------------------------------------------- all of the small ones

MODELS: dict[str, Callable[..., Recipe]] = {
    each.__name__: each
    for each in (
        deep_linear,
        cnn,
        resnet,
        vit,
        gpt_sdpa,
        gpt_softmax,
        decoder,
        lstm,
        gru,
        hf_llama,
        hf_bert,
        hf_t5,
        dense_moe,
        routed_moe,
        unet,
        audio,
    )
}
SKIPPED = {
    ("lstm", "recompute-selective"): "a recurrent layer is one operator: there is nothing to select",
    ("gru", "recompute-selective"): "as for the LSTM",
    ("lstm", "16-mixed"): "oneDNN has no float16 LSTM for most CPUs; the real step fails",
}
