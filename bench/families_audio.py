"""Models of sound: spectra, waves by convolutions, vocoders with several discriminators, masked prediction, codecs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from families import family
from torch import nn

from surefoot import Recipe, recipe_of

audio = family("audio")


def spectrum(sound: torch.Tensor, size: int, hop: int) -> torch.Tensor:
    return torch.stft(sound, size, hop, window=torch.hann_window(size), return_complex=True)


def mel(bins: int = 40, size: int = 512) -> torch.Tensor:
    """A bank of triangles."""
    centres = 700 * (10 ** (torch.linspace(0, 2595 * math.log10(1 + 8000 / 700), bins + 2) / 2595) - 1)
    places = torch.linspace(0, 8000, size // 2 + 1)
    up = (places - centres[:-2, None]) / (centres[1:-1] - centres[:-2])[:, None]
    down = (centres[2:, None] - places) / (centres[2:] - centres[1:-1])[:, None]
    return torch.minimum(up, down).clamp(min=0)


@audio
def complex_mask() -> Recipe:
    """A denoiser that multiplies the spectrum by a complex mask, judged at three resolutions."""

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.GRU(514, 128, 2, batch_first=True), nn.Linear(128, 514)

        def forward(self, sound: torch.Tensor) -> torch.Tensor:
            waves = spectrum(sound, 512, 128)
            parts = torch.view_as_real(waves).transpose(1, 2).flatten(2)
            mask = self.head(self.body(parts)[0]).unflatten(-1, (-1, 2)).transpose(1, 2).contiguous()
            window = torch.hann_window(512)
            return torch.istft(waves * torch.view_as_complex(mask), 512, 128, window=window, length=sound.shape[-1])

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        noisy, clean = batch
        out, total = model(noisy), torch.zeros(())
        for size in (256, 512, 1024):
            one, two = (spectrum(each, size, size // 4).abs().clamp(min=1e-5) for each in (out, clean))
            total = total + (one - two).norm() / two.norm() + F.l1_loss(one.log(), two.log())
        return total

    return recipe_of(Denoiser, (torch.randn(4, 16000), torch.randn(4, 16000)), loss=loss)


class Tasnet(nn.Module):
    def __init__(self, sources: int = 3) -> None:
        super().__init__()
        self.sources = sources
        self.encode, self.decode = nn.Conv1d(1, 64, 16, 8, bias=False), nn.ConvTranspose1d(64, 1, 16, 8, bias=False)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(64, 128, 1), nn.PReLU(), nn.GroupNorm(1, 128, eps=1e-8),
                nn.Conv1d(128, 128, 3, padding=2**n, dilation=2**n, groups=128), nn.PReLU(),
                nn.GroupNorm(1, 128, eps=1e-8), nn.Conv1d(128, 64, 1),
            )
            for n in range(5)
        )  # fmt: skip
        self.mask = nn.Conv1d(64, 64 * sources, 1)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        waves = F.relu(self.encode(sound[:, None]))
        x = waves
        for block in self.blocks:
            x = x + block(x)
        masks = torch.sigmoid(self.mask(x)).unflatten(1, (self.sources, 64))
        return self.decode((waves[:, None] * masks).flatten(0, 1)).view(len(sound), self.sources, -1)


@audio
def conv_tasnet() -> Recipe:
    """Speakers told apart, judged in the order that fits best."""

    def si_snr(said: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
        said, true = (each - each.mean(-1, keepdim=True) for each in (said, true))
        aim = (said * true).sum(-1, keepdim=True) * true / (true.square().sum(-1, keepdim=True) + 1e-8)
        noise = said - aim
        return 10 * torch.log10(aim.square().sum(-1) / (noise.square().sum(-1) + 1e-8) + 1e-8)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        sources = batch[0]
        said = model(sources.sum(1))
        orders = list(itertools.permutations(range(3)))
        found = torch.stack([si_snr(said[:, list(order)], sources).mean(1) for order in orders], 1)
        return -found.max(1).values.mean()

    return recipe_of(Tasnet, (torch.randn(2, 3, 4000),), loss=loss)


@audio
def masked_contrast() -> Recipe:
    """wav2vec 2.0: spans are hidden, codes drawn by Gumbel's trick, and distractors taken from the same sound."""

    class Wav(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ears = nn.Sequential(
                nn.Conv1d(1, 64, 10, 5), nn.GroupNorm(64, 64), nn.GELU(), nn.Conv1d(64, 64, 3, 2), nn.GELU(),
                nn.Conv1d(64, 64, 3, 2), nn.GELU(),
            )  # fmt: skip
            self.hidden = nn.Parameter(torch.rand(64))
            layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.to_codes, self.codes = nn.Linear(64, 2 * 32), nn.Parameter(torch.rand(2, 32, 32))

        def quantised(self, x: torch.Tensor) -> torch.Tensor:
            chosen = F.gumbel_softmax(self.to_codes(x).unflatten(-1, (2, 32)), tau=2.0, hard=True)
            return torch.einsum("btgc,gcd->btgd", chosen, self.codes).flatten(2)

    def spans(samples: int, length: int) -> torch.Tensor:
        mask = torch.zeros(samples, length, dtype=torch.bool)
        for sample in range(samples):
            for start in torch.randperm(length - 10)[: int(0.065 * length)].tolist():
                mask[sample, start : start + 10] = True
        count = int(mask.sum(1).min())
        for row in mask:
            extra = row.nonzero().squeeze(1)
            row[extra[torch.randperm(len(extra))[count:]]] = False
        return mask

    def loss(model: Any, batch: Any) -> torch.Tensor:
        x = model.ears(batch[0][:, None]).transpose(1, 2)
        mask = spans(*x.shape[:2])
        aims = model.quantised(x)
        seen = model.body(torch.where(mask[..., None], model.hidden, x))[mask].view(len(x), -1, 64)
        aims = aims[mask].view(len(x), -1, 64)
        others = torch.randint(0, aims.shape[1], (len(x), aims.shape[1] * 20))
        wrong = aims.gather(1, others[..., None].expand(-1, -1, 64)).view(len(x), aims.shape[1], 20, 64)
        scores = F.cosine_similarity(seen[:, :, None], torch.cat([aims[:, :, None], wrong], 2), dim=-1) / 0.1
        return F.cross_entropy(scores.flatten(0, 1), torch.zeros(scores.shape[0] * scores.shape[1], dtype=torch.long))

    return recipe_of(Wav, (torch.randn(4, 8000),), loss=loss)


@audio
def vocoder() -> Recipe:
    """HiFi-GAN: a generator of waves against discriminators that fold the sound by a period."""

    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv1d(40, 128, 7, padding=3), nn.Conv1d(32, 1, 7, padding=3)
            self.ups = nn.ModuleList(nn.ConvTranspose1d(128 // 2**n, 64 // 2**n, 16, 8, 4) for n in range(2))
            self.rest = nn.ModuleList(
                nn.ModuleList(nn.Conv1d(64 // 2**n, 64 // 2**n, 3, padding=d, dilation=d) for d in (1, 3, 5))
                for n in range(2)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            for up, rest in zip(self.ups, self.rest, strict=True):
                x = up(F.leaky_relu(x, 0.1))
                x = sum((each(F.leaky_relu(x, 0.1)) for each in rest), x)
            return torch.tanh(self.last(F.leaky_relu(x)))

    class Periods(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.periods = (2, 3, 5)
            self.parts = nn.ModuleList(
                nn.Sequential(nn.Conv2d(1, 32, (5, 1), (3, 1), (2, 0)), nn.LeakyReLU(0.1), nn.Conv2d(32, 1, (3, 1)))
                for _ in self.periods
            )

        def forward(self, sound: torch.Tensor) -> list[torch.Tensor]:
            said = []
            for period, part in zip(self.periods, self.parts, strict=True):
                padded = F.pad(sound, (0, -sound.shape[-1] % period), "reflect")
                said.append(part(padded.unflatten(-1, (-1, period))))
            return said

    bank = mel()

    def mels(sound: torch.Tensor) -> torch.Tensor:
        return (bank @ spectrum(sound.squeeze(1), 512, 64)[..., :-1].abs()).clamp(min=1e-5).log()

    def step(networks: Any, optimizers: Any, batch: Any) -> dict[str, torch.Tensor]:
        (true,) = batch
        made = networks["generator"](mels(true))
        judge, judging = networks["judge"], optimizers["judge"]
        judging.zero_grad()
        pairs = zip(judge(true), judge(made.detach()), strict=True)
        wrong = sum(((1 - one).square().mean() + two.square().mean() for one, two in pairs), torch.zeros(()))
        wrong.backward()
        judging.step()
        optimizers["generator"].zero_grad()
        fooled = sum(((1 - each).square().mean() for each in judge(made)), torch.zeros(()))
        loss = fooled + 45 * F.l1_loss(mels(made), mels(true))
        loss.backward()
        optimizers["generator"].step()
        return {"generator": loss, "judge": wrong}

    return recipe_of(
        lambda: {"generator": Generator(), "judge": Periods()},
        (torch.randn(4, 1, 4096),),
        optimizer=lambda networks: {name: torch.optim.AdamW(each.parameters()) for name, each in networks.items()},
        step=step,
    )


@audio
def spec_augment() -> Recipe:
    """A classifier of spectra with stripes of random width hidden, as they are drawn for each batch."""

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("bank", mel())
            self.body = nn.Sequential(
                nn.Conv2d(1, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
                nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 35),
            )  # fmt: skip

        def forward(self, sound: torch.Tensor) -> torch.Tensor:
            x = (self.bank @ spectrum(sound, 512, 160).abs().square() + 1e-6).log()
            if self.training:
                width = int(torch.randint(1, 9, (1,)))
                start = int(torch.randint(0, x.shape[1] - width, (1,)))
                x[:, start : start + width] = 0
                width = min(25, int(torch.empty(1).uniform_(0, 30).item()))
                x = torch.cat([x[:, :, :-width], x.new_zeros(*x.shape[:2], width)], 2)
            return self.body(x[:, None])

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    return recipe_of(Classifier, (torch.randn(8, 16000), torch.randint(0, 35, (8,))), loss=loss)


@audio
def codec() -> Recipe:
    """A codec with residual codebooks that follow averages, as EnCodec and SoundStream train."""

    class Quantiser(nn.Module):
        def __init__(self, size: int = 128, width: int = 64) -> None:
            super().__init__()
            self.register_buffer("codes", torch.randn(size, width))
            self.register_buffer("counts", torch.ones(size))
            self.register_buffer("sums", torch.randn(size, width))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            flat = x.flatten(0, 1)
            nearest = torch.cdist(flat, self.codes).argmin(-1)
            chosen = F.embedding(nearest, self.codes).view_as(x)
            if self.training:
                with torch.no_grad():
                    hot = F.one_hot(nearest, len(self.codes)).type(flat.dtype)
                    self.counts.lerp_(hot.sum(0), 0.01)
                    self.sums.lerp_(hot.t() @ flat, 0.01)
                    self.codes.copy_(self.sums / self.counts[:, None])
            return x + (chosen - x).detach(), F.mse_loss(x, chosen.detach())

    class Codec(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(nn.Conv1d(1, 32, 8, 4, 2), nn.ELU(), nn.Conv1d(32, 64, 8, 4, 2))
            self.middle, self.books = nn.LSTM(64, 64, 2, batch_first=True), nn.ModuleList(Quantiser() for _ in range(4))
            self.up = nn.Sequential(nn.ConvTranspose1d(64, 32, 8, 4, 2), nn.ELU(), nn.ConvTranspose1d(32, 1, 8, 4, 2))

        def forward(self, sound: torch.Tensor) -> Any:
            x = self.down(sound).transpose(1, 2)
            rest = x + self.middle(x)[0]
            total, commit = torch.zeros_like(rest), torch.zeros(())
            for book in self.books:
                coded, wrong = book(rest)
                rest, total, commit = rest - coded.detach(), total + coded, commit + wrong
            return self.up(total.transpose(1, 2)), commit

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        made, commit = model(batch[0])
        return F.l1_loss(made, batch[0]) + 0.25 * commit

    return recipe_of(Codec, (torch.randn(4, 1, 8192),), loss=loss)


@audio
def attention_decoder() -> Recipe:
    """A Tacotron: frames are made one after the other, each with a place to listen at that depends on the last."""

    class Speaker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.encoder = nn.Embedding(60, 64), nn.LSTM(64, 32, batch_first=True, bidirectional=True)
            self.prenet = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Dropout(0.5))
            self.cell, self.query, self.keys = nn.LSTMCell(128, 128), nn.Linear(128, 64), nn.Linear(64, 64)
            self.places, self.score = nn.Conv1d(2, 64, 15, padding=7), nn.Linear(64, 1)
            self.frame, self.stop = nn.Linear(192, 40), nn.Linear(192, 1)

        def forward(self, text: torch.Tensor, frames: torch.Tensor) -> Any:
            memory = self.encoder(self.embed(text))[0]
            keys = self.keys(memory)
            state = memory.new_zeros(len(text), 128), memory.new_zeros(len(text), 128)
            looked = summed = memory.new_zeros(text.shape)
            context, out = memory.new_zeros(len(text), 64), []
            for last in F.pad(frames[:, :-1], (0, 0, 1, 0)).unbind(1):
                state = self.cell(torch.cat([self.prenet(last), context], -1), state)
                places = self.places(torch.stack([looked, summed], 1)).transpose(1, 2)
                scores = self.score(torch.tanh(self.query(state[0])[:, None] + keys + places)).squeeze(-1)
                looked = scores.softmax(-1)
                summed = summed + looked
                context = (looked[:, None] @ memory).squeeze(1)
                out.append(torch.cat([state[0], context], -1))
            every = torch.stack(out, 1)
            return self.frame(every), self.stop(every).squeeze(-1)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        text, frames, ends = batch
        made, stop = model(text, frames)
        return F.mse_loss(made, frames) + F.binary_cross_entropy_with_logits(stop, ends)

    batch = torch.randint(0, 60, (8, 30)), torch.randn(8, 40, 40), (torch.arange(40) > 37).float().expand(8, -1).clone()
    return recipe_of(Speaker, batch, loss=loss)
