"""Models that no meter was tuned on: of other kinds than those in `memory_models.py`, and never diagnosed.

Written before the booking of kernels' workspaces was committed (8c8cc2e), without sight of it, and run only
for real: no prediction for them was looked at. Sizes were changed only for speed, and one initialisation so
that float16 gradients stay finite. Who diagnoses one of them must say so here: it is then no longer held out.

Diagnosed since, and no longer counted as held out: tagger (its plan crashed: the length of a packed sequence) and
two_towers (an error of the fix for tagger showed in it).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from memory_models import OPTIMIZERS, class_loss, gelu_mlp, hf_loss, labelled, recomputing, run, tokens, transformers
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import TensorDataset

from surefoot import Recipe


def generator() -> torch.Generator:
    """Data is always the same."""
    return torch.Generator().manual_seed(1)


def images(samples: int, channels: int, side: int) -> Tensor:
    """Random images with values from 0 to 1."""
    return torch.rand(samples, channels, side, side, generator=generator())


# ------------------------------------------------------------------------------------------- images


class MixerBlock(nn.Module):
    """One MLP across the patches, one across the channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.patch_norm, self.patch_mlp = nn.LayerNorm(width), gelu_mlp(patches)
        self.width_norm, self.width_mlp = nn.LayerNorm(width), gelu_mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.patch_mlp(self.patch_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.width_mlp(self.width_norm(x))


class Mixer(nn.Module):
    def __init__(self, layers: int, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.ModuleList(MixerBlock(64, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = run(block, x, recompute=self.recompute)
        return self.head(self.norm(x).mean(1))


def mixer(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return Recipe(
        model=lambda: Mixer(4, 192, recompute),
        data=lambda: labelled(64, 3, 64, 64, classes=100),
        loss=class_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=16,
    )


class ConvNeXtBlock(nn.Module):
    """A wide convolution per channel, an MLP on the channels put last, and whole samples dropped."""

    def __init__(self, width: int, dropped: float) -> None:
        super().__init__()
        self.dropped = dropped
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        hidden = self.scale * self.down(F.gelu(self.up(hidden)))
        kept = x.new_empty(len(x), 1, 1, 1).bernoulli_(1 - self.dropped) / (1 - self.dropped)
        return x + kept * hidden.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.shrink = nn.ModuleList(nn.Conv2d(k * width, 2 * k * width, 2, 2) for k in (1, 2))
        self.stages = nn.ModuleList(
            nn.ModuleList(ConvNeXtBlock(k * width, dropped=0.1) for _ in range(2)) for k in (1, 2, 4)
        )
        self.norm = nn.LayerNorm(4 * width)
        self.head = nn.Linear(4 * width, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for shrink, stage in zip([nn.Identity(), *self.shrink], self.stages, strict=True):
            x = shrink(x)
            for block in stage:
                x = run(block, x, recompute=self.recompute)
        return self.head(self.norm(x.mean((-2, -1))))


def smoothed_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, targets = batch
    return F.cross_entropy(model(x), targets, label_smoothing=0.1)


def convnext(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return Recipe(
        model=lambda: ConvNeXt(48, recompute),
        data=lambda: labelled(64, 3, 64, 64, classes=100),
        loss=smoothed_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=16,
    )


class DenseLayer(nn.Sequential):
    def __init__(self, inputs: int, growth: int) -> None:
        narrow = nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        wide = nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True), nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)
        super().__init__(*narrow, *wide)


class DenseNet(nn.Module):
    """Every layer reads what all layers before it wrote."""

    def __init__(self, growth: int, layers: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        width = 2 * growth
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.stages, self.shrink = nn.ModuleList(), nn.ModuleList()
        for _ in range(3):
            self.stages.append(nn.ModuleList(DenseLayer(width + growth * n, growth) for n in range(layers)))
            width = (width + growth * layers) // 2
            wide = nn.BatchNorm2d(2 * width), nn.ReLU(inplace=True)
            self.shrink.append(nn.Sequential(*wide, nn.Conv2d(2 * width, width, 1, bias=False), nn.AvgPool2d(2)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage, shrink in zip(self.stages, self.shrink, strict=True):
            for layer in stage:
                x = torch.cat([x, run(layer, x, recompute=self.recompute)], dim=1)
            x = shrink(x)
        return self.head(x.mean((-2, -1)))


def densenet(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return Recipe(
        model=lambda: DenseNet(16, 4, recompute),
        data=lambda: labelled(64, 3, 32, 32, classes=10),
        loss=class_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=16,
    )


class VAE(nn.Module):
    """Strided convolutions to a normal distribution, a sample of it, transposed convolutions back."""

    def __init__(self, width: int, latent: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        widths = [3, width, 2 * width, 4 * width]
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
            for a, b in itertools.pairwise(widths)
        )
        self.to_latent = nn.Linear(4 * width * 36, 2 * latent)
        self.from_latent = nn.Linear(latent, 4 * width * 36)
        self.up = nn.ModuleList(
            nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(a, b, 4, 2, 1)) for a, b in itertools.pairwise(widths[::-1])
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        for block in self.down:
            x = run(block, x, recompute=self.recompute)
        mean, log_variance = self.to_latent(x.flatten(1)).chunk(2, dim=1)
        sample = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        out = self.from_latent(sample).view_as(x)
        for block in self.up:
            out = run(block, out, recompute=self.recompute)
        return out, mean, log_variance


def evidence_loss(model: nn.Module, batch: tuple[Tensor]) -> tuple[Tensor, int]:
    (image,) = batch
    logits, mean, log_variance = model(image)
    rebuilt = F.binary_cross_entropy_with_logits(logits, image, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return rebuilt + divergence, image.numel()


def vae(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return Recipe(
        model=lambda: VAE(32, 64, recompute),
        data=lambda: TensorDataset(images(128, 3, 48)),
        loss=evidence_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=16,
    )


class Narrow(nn.Module):
    """Convolves, then halves the image and says which pixels it kept."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 5, padding=2), nn.InstanceNorm2d(outputs, affine=True), nn.PReLU(outputs)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.max_pool2d(self.body(x), 2, return_indices=True)


class Widen(nn.Module):
    """Puts pixels back where they came from, then convolves."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inputs, outputs, 5, padding=2), nn.ELU())

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        return self.body(F.max_unpool2d(x, places, 2))


class Autoencoder(nn.Module):
    def __init__(self, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        widths = [3, width, 2 * width, 4 * width]
        self.narrow = nn.ModuleList(Narrow(*pair) for pair in itertools.pairwise(widths))
        self.widen = nn.ModuleList(Widen(*pair) for pair in itertools.pairwise([*widths[:0:-1], width]))
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for block in self.narrow:
            x, places = run(block, x, recompute=self.recompute)
            kept.append(places)
        for block in self.widen:
            x = run(block, x, kept.pop(), recompute=self.recompute)
        return self.last(x).sigmoid()


def rebuilding_loss(model: nn.Module, batch: tuple[Tensor]) -> tuple[Tensor, int]:
    (image,) = batch
    return F.l1_loss(model(image), image, reduction="sum"), image.numel()


def autoencoder(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return Recipe(
        model=lambda: Autoencoder(16, recompute),
        data=lambda: TensorDataset(images(32, 3, 64)),
        loss=rebuilding_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=8,
    )


class TimedResidual(nn.Module):
    """Two convolutions with GroupNorm; the time of the noise is added between them."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.dropout(F.silu(self.norm2(hidden)), 0.1, self.training))


class PixelAttention(nn.Module):
    """Every pixel looks at every pixel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = (
            nn.GroupNorm(8, width),
            nn.Conv2d(width, 3 * width, 1),
            nn.Conv2d(width, width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(1, (3, self.heads, -1)).flatten(-2).transpose(-2, -1).unbind(1)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(-2, -1).reshape(x.shape))


class Diffusion(nn.Module):
    """A U-Net that is told how noisy its image is."""

    def __init__(self, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute, self.width = recompute, width
        time = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList([TimedResidual(width, width, time), TimedResidual(width, 2 * width, time)])
        self.shrink = nn.ModuleList(nn.Conv2d(k * width, k * width, 3, 2, 1) for k in (1, 2))
        self.middle = nn.ModuleList(TimedResidual(2 * width, 2 * width, time) for _ in range(2))
        self.attention = PixelAttention(2 * width, 4)
        self.grow = nn.ModuleList(nn.Conv2d(2 * width, 2 * width, 3, padding=1) for _ in range(2))
        self.up = nn.ModuleList([TimedResidual(4 * width, 2 * width, time), TimedResidual(3 * width, width, time)])
        self.last = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def waves(self, when: Tensor) -> Tensor:
        frequencies = torch.exp(torch.linspace(0, -9, self.width // 2, device=when.device))
        angles = when[:, None].float() * frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    def forward(self, x: Tensor, when: Tensor) -> Tensor:
        time, x, kept = self.time(self.waves(when)), self.first(x), []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            x = run(block, x, time, recompute=self.recompute)
            kept.append(x)
            x = shrink(x)
        x = run(self.middle[0], x, time, recompute=self.recompute)
        x = run(self.attention, x, recompute=self.recompute)
        x = run(self.middle[1], x, time, recompute=self.recompute)
        for block, grow in zip(self.up, self.grow, strict=True):
            x = torch.cat([grow(F.interpolate(x, scale_factor=2.0, mode="nearest")), kept.pop()], dim=1)
            x = run(block, x, time, recompute=self.recompute)
        return self.last(x)


def noise_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """The noise is drawn in the step; the model guesses it."""
    image, when = batch
    signal = torch.cos(when / 1000 * torch.pi / 2).square()[:, None, None, None]
    noise = torch.randn_like(image)
    guess = model(signal.sqrt() * image + (1 - signal).sqrt() * noise, when)
    return F.huber_loss(guess, noise, reduction="sum"), image.numel()


def diffusion(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return Recipe(
        model=lambda: Diffusion(32, recompute),
        data=lambda: TensorDataset(images(32, 3, 32), torch.randint(1000, (32,), generator=generator())),
        loss=noise_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=8,
    )


# ------------------------------------------------------------------------------------------- sequences

PADDING = 0


def padded(samples: int, context: int, vocabulary: int) -> Tensor:
    """Random tokens; every sample ends in padding, of its own length."""
    made = generator()
    words = torch.randint(1, vocabulary, (samples, context), generator=made)
    lengths = torch.randint(context // 2, context, (samples, 1), generator=made)
    return words.masked_fill(torch.arange(context) >= lengths, PADDING)


class Translator(nn.Module):
    """torch's own encoder and decoder layers, told what is padding."""

    def __init__(self, layers: int, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.token = nn.Embedding(2048, width, padding_idx=PADDING)
        self.position = nn.Parameter(torch.randn(64, width) * 0.02)
        layer = {"d_model": width, "nhead": 4, "dim_feedforward": 2 * width, "dropout": 0.1, "batch_first": True}
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(**layer, norm_first=True) for _ in range(layers))
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(**layer, activation="gelu") for _ in range(layers))
        self.head = nn.Linear(width, 2048)

    def embed(self, x: Tensor) -> Tensor:
        return F.dropout(self.token(x) + self.position[: x.shape[1]], 0.1, self.training)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        unseen, unsaid = source == PADDING, target == PADDING
        later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1)
        x, y = self.embed(source), self.embed(target)
        for layer in self.encoder:
            x = run(lambda x, layer=layer: layer(x, src_key_padding_mask=unseen), x, recompute=self.recompute)
        masks = {"tgt_mask": later, "tgt_key_padding_mask": unsaid, "memory_key_padding_mask": unseen}
        for layer in self.decoder:
            y = run(lambda y, x, layer=layer: layer(y, x, **masks), y, x, recompute=self.recompute)
        return self.head(y)


def unpadded_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    source, target = batch
    logits, wanted = model(source, target[:, :-1]), target[:, 1:]
    loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PADDING, reduction="sum")
    return loss, (wanted != PADDING).sum()


def translator(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return Recipe(
        model=lambda: Translator(2, 192, recompute),
        data=lambda: TensorDataset(padded(64, 64, 2048), padded(64, 64, 2048)),
        loss=unpadded_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=8,
        tokens_per_sample=64,
    )


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers over packed sequences; it returns the packed logits."""

    def __init__(self, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.token = nn.Embedding(4096, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, dropout=0.2, bidirectional=True)
        self.head = nn.Linear(2 * width, 32)

    def read(self, x: Tensor) -> Tensor:
        return self.lstm(pack_padded_sequence(x, LENGTHS, batch_first=True))[0].data

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(self.token(x), 0.2, self.training)
        return self.head(run(self.read, x, recompute=self.recompute))


LENGTHS = [48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24, 20, 16, 8]
"""How long the sequences of each micro-batch are, as when samples are sorted by length."""


def tagging_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    words, tags = batch
    wanted = pack_padded_sequence(tags, LENGTHS, batch_first=True).data
    return F.cross_entropy(model(words), wanted, reduction="sum"), sum(LENGTHS)


def tagger(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    def data() -> TensorDataset:
        words, tags = tokens(64, 48, 4096).tensors
        return TensorDataset(words, tags % 32)

    return Recipe(
        model=lambda: Tagger(192, recompute),
        data=data,
        loss=tagging_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=len(LENGTHS),
        tokens_per_sample=48,
    )


class Highway(nn.Module):
    """Each feature is carried over or transformed, by a gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.both = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        gate, new = self.both(x).chunk(2, dim=-1)
        return torch.lerp(x, F.relu(new).to(x.dtype), gate.sigmoid().to(x.dtype))


class CharCNN(nn.Module):
    """Characters under filters of several widths, the largest answer of each, then highways."""

    def __init__(self, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.character = nn.Embedding(128, 64)
        self.filters = nn.ModuleList(nn.Conv1d(64, width, size) for size in (3, 4, 5, 7))
        self.highways = nn.ModuleList(Highway(4 * width) for _ in range(2))
        self.head = nn.Linear(4 * width, 50)

    def forward(self, x: Tensor) -> Tensor:
        x = self.character(x).transpose(1, 2)
        found = [
            run(lambda x, each=each: each(x).relu().amax(-1), x, recompute=self.recompute) for each in self.filters
        ]
        x = torch.cat(found, dim=-1)
        for highway in self.highways:
            x = run(highway, x, recompute=self.recompute)
        return self.head(x)


def labels_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, wanted = batch
    return F.binary_cross_entropy_with_logits(model(x), wanted, reduction="sum"), wanted.numel()


def char_cnn(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    def data() -> TensorDataset:
        characters, _ = tokens(64, 512, 128).tensors
        return TensorDataset(characters, torch.rand(64, 50, generator=generator()).round())

    return Recipe(
        model=lambda: CharCNN(128, recompute),
        data=data,
        loss=labels_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=16,
    )


class ScanBlock(nn.Module):
    """Mamba-like: a short causal convolution, then states that decay as the input says, summed by cumsum."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.width, self.states = width, states
        self.norm = nn.RMSNorm(width)
        self.enter = nn.Linear(width, 2 * width, bias=False)
        self.conv = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.select = nn.Linear(width, 1 + 2 * states, bias=False)
        self.pace = nn.Parameter(torch.full((width,), -4.0))
        self.decay = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(width, 1))
        self.skip = nn.Parameter(torch.ones(width))
        self.leave = nn.Linear(width, width, bias=False)

    def scan(self, x: Tensor) -> Tensor:
        pace, write, read = self.select(x).float().split([1, self.states, self.states], dim=-1)
        pace = F.softplus(pace + self.pace)
        faded = (pace[..., None] * -self.decay.exp()).cumsum(1)
        written = (pace * x)[..., None] * write[:, :, None]
        states = faded.exp() * (written * (-faded).exp()).cumsum(1)
        return (states * read[:, :, None]).sum(-1) + self.skip * x

    def forward(self, x: Tensor) -> Tensor:
        inside, gate = self.enter(self.norm(x)).chunk(2, dim=-1)
        inside = self.conv(inside.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        return x + self.leave(self.scan(F.silu(inside)) * F.silu(gate))


class Mamba(nn.Module):
    def __init__(self, layers: int, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.token = nn.Embedding(2048, width)
        self.blocks = nn.ModuleList(ScanBlock(width, states=8) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, 2048, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.token(x)
        for block in self.blocks:
            x = run(block, x, recompute=self.recompute)
        return self.head(self.norm(x))


def mamba(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return Recipe(
        model=lambda: Mamba(2, 192, recompute),
        data=lambda: tokens(64, 96, 2048),
        loss=class_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=4,
        tokens_per_sample=96,
    )


# ------------------------------------------------------------------------------------------- graphs and tables


class GraphAttention(nn.Module):
    """Each node takes from its neighbours, by weights that sum to one over the edges that reach it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, width, bias=False)
        self.source = nn.Parameter(torch.randn(heads, width // heads) * 0.1)
        self.target = nn.Parameter(torch.randn(heads, width // heads) * 0.1)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        hidden = self.project(x).unflatten(-1, (self.heads, -1))
        scores = (hidden * self.source).sum(-1)[:, source] + (hidden * self.target).sum(-1)[:, target]
        scores = F.leaky_relu(scores, 0.2)
        place = target[None, :, None].expand_as(scores)
        empty = scores.new_zeros(*hidden.shape[:-1])
        highest = empty.scatter_reduce(1, place, scores.detach(), "amax", include_self=False)
        shares = (scores - highest.gather(1, place)).exp()
        shares = shares / empty.scatter_add(1, place, shares).gather(1, place)
        messages = hidden[:, source] * F.dropout(shares, 0.1, self.training)[..., None].to(hidden.dtype)
        return x + F.elu(torch.zeros_like(hidden).index_add(1, target, messages).flatten(-2))


class Graph(nn.Module):
    def __init__(self, nodes: int, edges: int, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        made = generator()
        for name in ("source", "target"):
            self.register_buffer(name, torch.randint(nodes, (edges,), generator=made))
        self.first = nn.Linear(16, width)
        self.blocks = nn.ModuleList(GraphAttention(width, 4) for _ in range(3))
        self.last = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = run(block, x, self.source, self.target, recompute=self.recompute)
        return self.last(x).squeeze(-1)


def huber_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, y = batch
    return F.huber_loss(model(x), y, reduction="sum"), y.numel()


def graph(recompute: str = "none", optimizer: str = "adamw", nodes: int = 400) -> Recipe:
    def data() -> TensorDataset:
        made = generator()
        return TensorDataset(torch.randn(16, nodes, 16, generator=made), torch.randn(16, nodes, generator=made))

    return Recipe(
        model=lambda: Graph(nodes, 3000, 128, recompute),
        data=data,
        loss=huber_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=4,
    )


class DLRM(nn.Module):
    """Tables of embeddings summed over bags, and the products of every two features."""

    def __init__(self, tables: int, rows: int, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        for table in self.tables:
            nn.init.uniform_(table.weight, -(rows**-0.5), rows**-0.5)
        self.dense = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1))

    def interact(self, *features: Tensor) -> Tensor:
        stacked = torch.stack([each.float() for each in features], dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        first, second = torch.tril_indices(len(features), len(features), -1)
        return torch.cat([features[0], products[:, first, second]], dim=1)

    def forward(self, dense: Tensor, bags: Tensor) -> Tensor:
        features = [run(self.dense, dense, recompute=self.recompute)]
        features += [table(bag) for table, bag in zip(self.tables, bags.unbind(1), strict=True)]
        x = run(self.interact, *features, recompute=self.recompute)
        return run(self.top, x, recompute=self.recompute).squeeze(-1)


def click_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, int]:
    dense, bags, clicked = batch
    return F.binary_cross_entropy_with_logits(model(dense, bags), clicked, reduction="sum"), len(clicked)


def dlrm(recompute: str = "none", optimizer: str = "adamw", tables: int = 8, rows: int = 5000) -> Recipe:
    def data() -> TensorDataset:
        made = generator()
        dense, clicked = torch.rand(2048, 13, generator=made), torch.rand(2048, generator=made).round()
        return TensorDataset(dense, torch.randint(rows, (2048, tables, 6), generator=made), clicked)

    return Recipe(
        model=lambda: DLRM(tables, rows, 32, recompute),
        data=data,
        loss=click_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=512,
    )


# ------------------------------------------------------------------------------------------- two models in one


class TwoTowers(nn.Module):
    """Images and words to unit vectors of one space."""

    def __init__(self, width: int, recompute: str) -> None:
        super().__init__()
        self.recompute = recompute
        convolutions = (nn.Conv2d(a, b, 3, 2, 1) for a, b in itertools.pairwise([3, 64, 128, width]))
        self.image = nn.ModuleList(nn.Sequential(each, nn.Hardswish()) for each in convolutions)
        self.token = nn.Embedding(2048, width)
        self.text = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        blocks, axes = (self.image, (-2, -1)) if x.is_floating_point() else (self.text, 1)
        x = x if x.is_floating_point() else self.token(x)
        for block in blocks:
            x = run(block, x, recompute=self.recompute)
        return F.normalize(x.mean(axes), dim=-1)


def contrastive_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """InfoNCE both ways; the model is called once for each side."""
    image, words = batch
    scores = model(image) @ model(words).T * model.temperature.exp()
    targets = torch.arange(len(scores), device=scores.device)
    return (F.cross_entropy(scores, targets) + F.cross_entropy(scores.T, targets)) / 2


def two_towers(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    def data() -> TensorDataset:
        words, _ = tokens(128, 32, 2048).tensors
        return TensorDataset(images(128, 3, 32), words)

    return Recipe(
        model=lambda: TwoTowers(192, recompute),
        data=data,
        loss=contrastive_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=32,
    )


# ------------------------------------------------------------------------------------------- Hugging Face


def hf_gpt2(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    def model() -> nn.Module:
        hf = transformers()
        shape = {"vocab_size": 2048, "n_positions": 128, "n_embd": 256, "n_layer": 4, "n_head": 4}
        config = hf.GPT2Config(**shape, bos_token_id=0, eos_token_id=0, use_cache=False)
        return recomputing(hf.GPT2LMHeadModel(config), recompute)

    return Recipe(
        model=model,
        data=lambda: tokens(64, 128, 2048),
        loss=hf_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=8,
        tokens_per_sample=128,
    )


class Distilled(nn.Module):
    """A DistilBERT of two layers that learns from a frozen one of four."""

    def __init__(self, recompute: str) -> None:
        super().__init__()
        hf = transformers()
        shape = {"vocab_size": 2048, "dim": 256, "hidden_dim": 1024, "n_heads": 4, "max_position_embeddings": 128}
        student, teacher = (hf.DistilBertForMaskedLM(hf.DistilBertConfig(**shape, n_layers=n)) for n in (2, 4))
        self.student, self.teacher = recomputing(student, recompute), teacher.requires_grad_(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mask = (x != PADDING).long()
        with torch.no_grad():
            taught = self.teacher(input_ids=x, attention_mask=mask).logits
        return self.student(input_ids=x, attention_mask=mask).logits, taught


def distillation_loss(model: nn.Module, batch: tuple[Tensor]) -> tuple[Tensor, int]:
    (x,) = batch
    learned, taught = (logits.float().log_softmax(-1) for logits in model(x))
    return F.kl_div(learned, taught, reduction="sum", log_target=True), x.numel()


def hf_distilbert(recompute: str = "none", optimizer: str = "adamw") -> Recipe:
    return Recipe(
        model=lambda: Distilled(recompute),
        data=lambda: TensorDataset(padded(64, 96, 2048)),
        loss=distillation_loss,
        optimizer=OPTIMIZERS[optimizer],
        micro_batch_size=8,
        tokens_per_sample=96,
    )


# ------------------------------------------------------------------------------------------- all of them

DIAGNOSED = ("tagger", "two_towers")

MODELS: dict[str, Callable[..., Recipe]] = {
    each.__name__: each
    for each in (
        mixer,
        convnext,
        densenet,
        vae,
        autoencoder,
        diffusion,
        translator,
        tagger,
        char_cnn,
        mamba,
        graph,
        dlrm,
        two_towers,
        hf_gpt2,
        hf_distilbert,
    )
}
SKIPPED = {
    ("tagger", "recompute-selective"): "torch refuses: the unpacked LSTM changes kept results in place",
    ("densenet", "16-mixed"): "a CPU's float16 convolutions take a minute; convnext, vae and two_towers have them too",
    ("autoencoder", "16-mixed"): "as for densenet",
    ("diffusion", "16-mixed"): "as for densenet",
    ("char_cnn", "16-mixed"): "as for densenet",
}

HELD_OUT = tuple(name for name in MODELS if name not in DIAGNOSED)
