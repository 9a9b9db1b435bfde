"""Generators and their critics: lazy penalties, pools of old images, several updates in a step, images that grow."""

from __future__ import annotations

import copy
import random
from typing import Any

import torch
import torch.nn.functional as F
from families import family
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from surefoot import Recipe, recipe_of

gan = family("adversarial", steps=6)


def adams(networks: Any, lr: float = 2e-4, beta: float = 0.0) -> dict[str, torch.optim.Optimizer]:
    return {
        name: torch.optim.Adam(networks[name].parameters(), lr=lr, betas=(beta, 0.99))
        for name in ("generator", "critic")
    }


def requires_grad(network: nn.Module, wanted: bool) -> None:
    for parameter in network.parameters():
        parameter.requires_grad_(wanted)


class Modulated(nn.Module):
    """A convolution whose weights each sample scales by its style: one grouped convolution for the batch."""

    def __init__(self, into: int, out: int, size: int = 3, demodulate: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, out, into, size, size) / (into * size * size) ** 0.5)
        self.style, self.demodulate = nn.Linear(64, into), demodulate
        self.bias, self.noise = nn.Parameter(torch.zeros(1, out, 1, 1)), nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        samples, _, high, wide = x.shape
        weight = self.weight * (1 + self.style(w))[:, None, :, None, None]
        if self.demodulate:
            weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        padding = weight.shape[-1] // 2
        x = F.conv2d(x.reshape(1, -1, high, wide), weight.flatten(0, 1), padding=padding, groups=samples)
        x = x.view(samples, -1, high, wide)
        return x + self.noise * torch.randn(samples, 1, high, wide) + self.bias


class Styled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mapping = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(64, 64), nn.LeakyReLU(0.2))])
        self.start = nn.Parameter(torch.randn(1, 64, 4, 4))
        widths = (64, 64, 48, 32)
        self.first = nn.ModuleList(Modulated(a, b) for a, b in zip((64, *widths), widths, strict=False))
        self.second = nn.ModuleList(Modulated(width, width) for width in widths)
        self.colours = nn.ModuleList(Modulated(width, 3, 1, demodulate=False) for width in widths)

    def forward(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        w = self.mapping(F.normalize(z, dim=1) * 8).unsqueeze(1).repeat(1, 4, 1)
        if self.training and random.random() < 0.9:
            after = random.randint(1, 3)
            w = torch.cat([w[:, :after], self.mapping(torch.randn_like(z)).unsqueeze(1).expand(-1, 4 - after, -1)], 1)
        x, image = self.start.expand(len(z), -1, -1, -1), None
        for number in range(4):
            if number:
                x = F.interpolate(x, scale_factor=2, mode="bilinear")
            x = F.leaky_relu(self.first[number](x, w[:, number]), 0.2)
            x = F.leaky_relu(self.second[number](x, w[:, number]), 0.2)
            colour = self.colours[number](x, w[:, number])
            image = colour if image is None else F.interpolate(image, scale_factor=2, mode="bilinear") + colour
        assert image is not None
        return image, w


class Judge(nn.Module):
    """A residual critic that also sees how much the images of a batch differ."""

    def __init__(self, side: int = 32, width: int = 32) -> None:
        super().__init__()
        self.into, self.blocks, self.skips = nn.Conv2d(3, width, 1), nn.ModuleList(), nn.ModuleList()
        while side > 4:
            out = min(2 * width, 96)
            self.blocks.append(
                nn.Sequential(
                    nn.Conv2d(width, width, 3, 1, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, out, 3, 2, 1),
                    nn.LeakyReLU(0.2),
                )
            )  # fmt: skip
            self.skips.append(nn.Conv2d(width, out, 1, 2))
            width, side = out, side // 2
        self.last = nn.Conv2d(width + 1, width, 3, 1, 1)
        self.head = nn.Sequential(nn.Linear(width * 16, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        for block, skip in zip(self.blocks, self.skips, strict=True):
            x = (block(x) + skip(x)) / 2**0.5
        spread = x.view(4, -1, *x.shape[1:]).var(0, unbiased=False).add(1e-8).sqrt().mean((1, 2, 3))
        spread = spread.repeat(4)[:, None, None, None].expand(-1, 1, *x.shape[2:])
        return self.head(F.leaky_relu(self.last(torch.cat([x, spread], 1)), 0.2).flatten(1)).squeeze(1)


@gan
def styles() -> Recipe:
    """Style mixing, R1 every fourth step, path lengths every second one, and an average of the generator."""

    def networks() -> dict[str, nn.Module]:
        generator = Styled()
        average = copy.deepcopy(generator).eval()
        requires_grad(average, False)
        average.register_buffer("path", torch.zeros(()))
        average.register_buffer("steps", torch.zeros((), dtype=torch.long))
        return {"generator": generator, "critic": Judge(), "average": average}

    def step(networks: Any, optimizers: Any, batch: Any) -> dict[str, torch.Tensor]:
        generator, critic, average = networks["generator"], networks["critic"], networks["average"]
        number, real = int(average.steps), batch[0]
        requires_grad(generator, False)
        requires_grad(critic, True)
        made, _ = generator(torch.randn(len(real), 64))
        critic_loss = F.softplus(critic(made)).mean() + F.softplus(-critic(real)).mean()
        optimizers["critic"].zero_grad()
        critic_loss.backward()
        optimizers["critic"].step()
        if number % 4 == 0:
            leaf = real.detach().requires_grad_()
            (slope,) = torch.autograd.grad(critic(leaf).sum(), leaf, create_graph=True)
            penalty = slope.square().sum((1, 2, 3)).mean()
            optimizers["critic"].zero_grad()
            (10 / 2 * penalty * 4).backward()
            optimizers["critic"].step()

        requires_grad(generator, True)
        requires_grad(critic, False)
        generator_loss = F.softplus(-critic(generator(torch.randn(len(real), 64))[0])).mean()
        optimizers["generator"].zero_grad()
        generator_loss.backward()
        optimizers["generator"].step()
        if number % 2 == 0:
            made, w = generator(torch.randn(len(real) // 2, 64))
            noise = torch.randn_like(made) / 32
            (slope,) = torch.autograd.grad((made * noise).sum(), w, create_graph=True)
            lengths = slope.square().sum(2).mean(1).sqrt()
            mean = average.path + 0.01 * (lengths.mean() - average.path)
            optimizers["generator"].zero_grad()
            (2 * 2 * (lengths - mean).square().mean() + 0 * made[0, 0, 0, 0]).backward()
            optimizers["generator"].step()
            average.path.copy_(mean.detach())
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), generator.parameters(), strict=True):
                slow.lerp_(fast, 0.002)
        average.steps += 1
        return {"critic": critic_loss, "generator": generator_loss}

    return recipe_of(networks, (torch.randn(16, 3, 32, 32),), step=step, optimizer=adams)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width), nn.ReLU(True),
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


def translator(width: int = 24) -> nn.Module:
    return nn.Sequential(
        nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU(True),
        nn.Conv2d(width, 2 * width, 3, 2, 1), nn.InstanceNorm2d(2 * width), nn.ReLU(True),
        *[Residual(2 * width) for _ in range(3)],
        nn.ConvTranspose2d(2 * width, width, 3, 2, 1, output_padding=1), nn.InstanceNorm2d(width), nn.ReLU(True),
        nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh(),
    )  # fmt: skip


def patches(into: int = 3, width: int = 32, norm: Any = nn.InstanceNorm2d) -> nn.Sequential:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(into, width, 4, 2, 1), nn.LeakyReLU(0.2, True)),
        nn.Sequential(nn.Conv2d(width, 2 * width, 4, 2, 1), norm(2 * width), nn.LeakyReLU(0.2, True)),
        nn.Sequential(nn.Conv2d(2 * width, 4 * width, 4, 1, 1), norm(4 * width), nn.LeakyReLU(0.2, True)),
        nn.Conv2d(4 * width, 1, 4, 1, 1),
    )


class Pool:
    """The last images that a generator made, of which a critic sees half instead of new ones."""

    def __init__(self, size: int) -> None:
        self.size, self.images = size, list[torch.Tensor]()

    def query(self, images: torch.Tensor) -> torch.Tensor:
        out = []
        for image in images.detach():
            if len(self.images) < self.size:
                self.images.append(image.clone())
                out.append(image)
            elif random.random() > 0.5:
                place = random.randrange(self.size)
                out.append(self.images[place])
                self.images[place] = image.clone()
            else:
                out.append(image)
        return torch.stack(out)


@gan
def cycles() -> Recipe:
    """Two translators that undo each other, identity losses, and pools of images made before."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.there, self.back, self.judge_a, self.judge_b = translator(), translator(), patches(), patches()
            self.pools = Pool(10), Pool(10)

    def optimizers(model: Any) -> dict[str, torch.optim.Optimizer]:
        translators = [*model.there.parameters(), *model.back.parameters()]
        judges = [*model.judge_a.parameters(), *model.judge_b.parameters()]
        return {
            "generator": torch.optim.Adam(translators, lr=2e-4, betas=(0.5, 0.999)),
            "critic": torch.optim.Adam(judges, lr=2e-4, betas=(0.5, 0.999)),
        }

    def near(scores: torch.Tensor, aim: float) -> torch.Tensor:
        return F.mse_loss(scores, torch.full_like(scores, aim))

    def step(model: Any, optimizers: Any, batch: Any) -> dict[str, torch.Tensor]:
        a, b = batch
        requires_grad(model.judge_a, False)
        requires_grad(model.judge_b, False)
        false_b, false_a = model.there(a), model.back(b)
        cycle = F.l1_loss(model.back(false_b), a) + F.l1_loss(model.there(false_a), b)
        identity = F.l1_loss(model.there(b), b) + F.l1_loss(model.back(a), a)
        fooled = near(model.judge_b(false_b), 1) + near(model.judge_a(false_a), 1)
        loss = fooled + 10 * cycle + 5 * identity
        optimizers["generator"].zero_grad()
        loss.backward()
        optimizers["generator"].step()
        requires_grad(model.judge_a, True)
        requires_grad(model.judge_b, True)
        optimizers["critic"].zero_grad()
        total = torch.zeros(())
        to_b, to_a = (model.judge_b, b, false_b, model.pools[0]), (model.judge_a, a, false_a, model.pools[1])
        for judge, real, made, pool in (to_b, to_a):
            judged = 0.5 * (near(judge(real), 1) + near(judge(pool.query(made)), 0))
            judged.backward()
            total += judged.detach()
        optimizers["critic"].step()
        return {"generator": loss, "critic": total}

    images = torch.rand(3, 3, 48, 48) * 2 - 1, torch.rand(3, 3, 48, 48) * 2 - 1
    return recipe_of(Both, images, step=step, optimizer=optimizers)


@gan
def interpolated_penalty() -> Recipe:
    """Three updates of a critic, with a penalty between real and made images, for each one of the generator."""

    def networks() -> dict[str, nn.Module]:
        generator = nn.Sequential(
            nn.Linear(64, 96 * 16), nn.Unflatten(1, (96, 4, 4)), nn.BatchNorm2d(96), nn.ReLU(),
            nn.ConvTranspose2d(96, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip
        critic = nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LayerNorm([64, 8, 8]),
            nn.LeakyReLU(0.2), nn.Conv2d(64, 96, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(96 * 16, 1),
        )  # fmt: skip
        return {"generator": generator, "critic": critic}

    def step(networks: Any, optimizers: Any, batch: Any) -> dict[str, torch.Tensor]:
        generator, critic, real = networks["generator"], networks["critic"], batch[0]
        for each in real.chunk(3):
            with torch.no_grad():
                made = generator(torch.randn(len(each), 64))
            mix = torch.rand(len(each), 1, 1, 1)
            between = (mix * each + (1 - mix) * made).requires_grad_()
            scores = critic(between)
            (slope,) = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True)
            penalty = (slope.flatten(1).norm(2, dim=1) - 1).square().mean()
            loss = critic(made).mean() - critic(each).mean() + 10 * penalty
            optimizers["critic"].zero_grad(set_to_none=True)
            loss.backward()
            optimizers["critic"].step()
        missed = -critic(generator(torch.randn(len(real) // 3, 64))).mean()
        optimizers["generator"].zero_grad()
        missed.backward()
        optimizers["generator"].step()
        return {"critic": loss, "generator": missed}

    return recipe_of(networks, (torch.randn(72, 3, 32, 32),), step=step, optimizer=lambda n: adams(n, 1e-4))


@gan
def matched_features() -> Recipe:
    """Labels to images: a U-Net, critics at two scales whose features must match, and a frozen network's features."""

    class Down(nn.Module):
        """A level of the U-Net, with the next one inside it."""

        def __init__(self, outer: int, inner: int, inside: nn.Module | None, into: int | None = None) -> None:
            super().__init__()
            self.down = nn.Conv2d(into or outer, inner, 4, 2, 1)
            self.norm, self.inside = nn.BatchNorm2d(inner), inside
            self.up = nn.ConvTranspose2d(inner * (1 if inside is None else 2), outer, 4, 2, 1)
            self.outermost = into is not None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = self.norm(self.down(F.leaky_relu(x, 0.2)))
            inner = inner if self.inside is None else self.inside(inner)
            out = self.up(F.relu(inner))
            return torch.tanh(out) if self.outermost else torch.cat([x, F.dropout(out, 0.5, self.training)], 1)

    class Translation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inside: nn.Module | None = None
            for outer, inner in ((96, 96), (64, 96), (32, 64)):
                inside = Down(outer, inner, inside)
            self.generator = Down(3, 32, inside, into=8)
            self.critics = nn.ModuleList(patches(11, 32, nn.BatchNorm2d) for _ in range(2))
            for critic in self.critics:
                for each in critic.modules():
                    if isinstance(each, nn.Conv2d):
                        spectral_norm(each)
            self.perceived = nn.Sequential(*[
                nn.Sequential(nn.Conv2d(a, b, 3, 1, 1), nn.ReLU(True), nn.MaxPool2d(2)) for a, b in ((3, 32), (32, 64))
            ]).requires_grad_(False)  # fmt: skip

        def features(self, x: torch.Tensor) -> list[list[torch.Tensor]]:
            found = []
            for critic in self.critics:
                kept = [x]
                for layer in critic:
                    kept.append(layer(kept[-1]))
                found.append(kept[1:])
                x = F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
            return found

    def optimizers(model: Any) -> dict[str, torch.optim.Optimizer]:
        return {
            "generator": torch.optim.Adam(model.generator.parameters(), lr=2e-4, betas=(0.5, 0.999)),
            "critic": torch.optim.Adam(model.critics.parameters(), lr=2e-4, betas=(0.5, 0.999)),
        }

    def step(model: Any, optimizers: Any, batch: Any) -> dict[str, torch.Tensor]:
        labels = F.one_hot(batch[0], 8).permute(0, 3, 1, 2).float()
        made, real = model.generator(labels), batch[1]
        seen_false = model.features(torch.cat([labels, made.detach()], 1))
        seen_real = model.features(torch.cat([labels, real], 1))
        judged = sum(F.relu(1 + each[-1]).mean() for each in seen_false)
        judged = judged + sum(F.relu(1 - each[-1]).mean() for each in seen_real)
        optimizers["critic"].zero_grad()
        judged.backward()
        optimizers["critic"].step()
        seen_false = model.features(torch.cat([labels, made], 1))
        with torch.no_grad():
            seen_real = model.features(torch.cat([labels, real], 1))
        loss = -sum(each[-1].mean() for each in seen_false)
        for false, true in zip(seen_false, seen_real, strict=True):
            for one, other in zip(false[:-1], true[:-1], strict=True):
                loss = loss + 10 / 4 * F.l1_loss(one, other.detach())
        one, other = made, real
        for layer in model.perceived:
            one, other = layer(one), layer(other)
            loss = loss + 5 * F.l1_loss(one, other)
        optimizers["generator"].zero_grad()
        loss.backward()
        optimizers["generator"].step()
        return {"generator": loss, "critic": judged}

    batch = torch.randint(0, 8, (4, 64, 64)), torch.rand(4, 3, 64, 64) * 2 - 1
    return recipe_of(Translation, batch, step=step, optimizer=optimizers)


class PowerIteration(nn.Module):
    """A spectral norm as it was written before torch had one: a vector in a buffer, refined in each call."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("u", F.normalize(torch.randn(layer.weight.shape[0]), dim=0))
        self.bar = nn.Parameter(layer.weight.data)
        del layer._parameters["weight"]

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        flat = self.bar.flatten(1)
        with torch.no_grad():
            v = F.normalize(flat.t() @ self.u, dim=0)
            if self.training:
                self.u.copy_(F.normalize(flat @ v, dim=0))
        self.layer.weight = self.bar / (self.u @ flat @ v)
        return self.layer(*inputs)


@gan
def classes() -> Recipe:
    """Norms that a class conditions, attention, hinge losses, accumulation, and augmentation that adapts itself."""

    class Conditional(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.told = nn.BatchNorm2d(width, affine=False), nn.Linear(96, 2 * width)

        def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
            gain, bias = self.told(told)[:, :, None, None].chunk(2, 1)
            return self.norm(x) * (1 + gain) + bias

    class Attention(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Conv2d(width, width // f, 1, bias=False) for f in (8, 8, 2))
            self.out, self.share = nn.Conv2d(width // 2, width, 1, bias=False), nn.Parameter(torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query = self.query(x).flatten(2)
            key, value = (F.max_pool2d(each(x), 2).flatten(2) for each in (self.key, self.value))
            weights = torch.bmm(query.transpose(1, 2), key).softmax(-1)
            mixed = torch.bmm(value, weights.transpose(1, 2)).view(len(x), -1, *x.shape[2:])
            return x + self.share * self.out(mixed)

    class Maker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classes, self.into = nn.Embedding(10, 32), PowerIteration(nn.Linear(64, 96 * 16))
            widths = ((96, 96), (96, 64), (64, 48))
            self.norms = nn.ModuleList(Conditional(a) for a, _ in widths)
            self.convs = nn.ModuleList(PowerIteration(nn.Conv2d(a, b, 3, 1, 1)) for a, b in widths)
            self.attention, self.out = Attention(64), nn.Conv2d(48, 3, 3, 1, 1)

        def forward(self, z: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
            told = torch.cat([z, self.classes(kind)], 1)
            x = self.into(z).view(-1, 96, 4, 4)
            for number, (norm, conv) in enumerate(zip(self.norms, self.convs, strict=True)):
                x = conv(F.interpolate(F.relu(norm(x, told)), scale_factor=2))
                x = self.attention(x) if number == 1 else x
            return torch.tanh(self.out(F.relu(x)))

    class Critic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = ((3, 32), (32, 64), (64, 96))
            self.convs = nn.ModuleList(PowerIteration(nn.Conv2d(a, b, 4, 2, 1)) for a, b in widths)
            self.classes, self.head = PowerIteration(nn.Embedding(10, 96)), PowerIteration(nn.Linear(96, 1))
            self.register_buffer("chance", torch.zeros(()))

        def augmented(self, x: torch.Tensor) -> torch.Tensor:
            def some() -> torch.Tensor:
                return torch.rand(len(x), 1, 1, 1) < self.chance

            x = torch.where(some(), x.flip(3), x)
            x = torch.where(some(), x + 0.2 * torch.randn(len(x), 1, 1, 1), x)
            chosen = (some() & some()).flatten().nonzero().squeeze(1)
            if len(chosen):
                x = x.index_copy(0, chosen, x[chosen].roll((4, -4), (2, 3)))
            return x

        def forward(self, x: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
            x = self.augmented(x)
            for conv in self.convs:
                x = F.relu(conv(x))
            x = x.sum((2, 3))
            return self.head(x).squeeze(1) + (self.classes(kind) * x).sum(1)

    def step(networks: Any, optimizers: Any, batch: Any) -> dict[str, torch.Tensor]:
        generator, critic = networks["generator"], networks["critic"]
        signs = []
        optimizers["critic"].zero_grad()
        for images, kinds in zip(batch[0].chunk(2), batch[1].chunk(2), strict=True):
            with torch.no_grad():
                made = generator(torch.randn(len(images), 64), kinds)
            scores = critic(torch.cat([made, images]), torch.cat([kinds, kinds]))
            false, true = scores.chunk(2)
            judged = F.relu(1 + false).mean() + F.relu(1 - true).mean()
            (judged / 2).backward()
            signs.append(true.detach().sign().mean())
        optimizers["critic"].step()
        optimizers["generator"].zero_grad()
        kinds = torch.randint(0, 10, (32,))
        loss = -critic(generator(torch.randn(32, 64), kinds), kinds).mean()
        loss.backward()
        with torch.no_grad():
            for parameter in generator.parameters():
                if parameter.dim() >= 2:
                    flat = parameter.flatten(1)
                    apart = flat @ flat.t() * (1 - torch.eye(len(flat)))
                    parameter.grad += 1e-4 * 2 * (apart @ flat).view_as(parameter)
            critic.chance.add_(0.1 * (torch.stack(signs).mean() - 0.6).sign()).clamp_(0, 0.8)
        optimizers["generator"].step()
        return {"critic": judged, "generator": loss}

    batch = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    return recipe_of(lambda: {"generator": Maker(), "critic": Critic()}, batch, step=step, optimizer=adams)


@gan
def growing() -> Recipe:
    """Images of 8, 16 and 32 pixels as training goes on; each new level fades in."""

    class Grown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Sequential(nn.Linear(64, 64 * 64), nn.Unflatten(1, (64, 8, 8)), nn.LeakyReLU(0.2))
            self.blocks = nn.ModuleList(self.block(64, 64) for _ in range(2))
            self.colours = nn.ModuleList(nn.Conv2d(64, 3, 1) for _ in range(3))

        def block(self, into: int, out: int) -> nn.Module:
            return nn.Sequential(
                nn.Upsample(scale_factor=2), nn.Conv2d(into, out, 3, 1, 1), nn.LeakyReLU(0.2),
                nn.Conv2d(out, out, 3, 1, 1), nn.LeakyReLU(0.2),
            )  # fmt: skip

        def forward(self, z: torch.Tensor, level: int, alpha: float) -> torch.Tensor:
            x = self.start(z)
            for block in self.blocks[:level]:
                before, x = x, block(x)
                x = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-8)
            image = self.colours[level](x)
            if level and alpha < 1:
                image = alpha * image + (1 - alpha) * F.interpolate(self.colours[level - 1](before), scale_factor=2)
            return image

    class Shrunk(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.colours = nn.ModuleList(nn.Conv2d(3, 64, 1) for _ in range(3))
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), nn.LeakyReLU(0.2), nn.AvgPool2d(2)) for _ in range(2)
            )
            self.head = nn.Sequential(nn.Conv2d(64, 64, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(1024, 1))

        def forward(self, image: torch.Tensor, level: int, alpha: float) -> torch.Tensor:
            x = F.leaky_relu(self.colours[level](image), 0.2)
            for number in reversed(range(level)):
                x = self.blocks[number](x)
                if number == level - 1 and alpha < 1:
                    smaller = F.leaky_relu(self.colours[level - 1](F.avg_pool2d(image, 2)), 0.2)
                    x = alpha * x + (1 - alpha) * smaller
            return self.head(x).squeeze(1)

    def batch(number: int, size: int) -> dict[str, Any]:
        level, alpha = min(number // 2, 2), 0.5 if number in (2, 4) else 1.0
        return {"images": torch.randn(size, 3, 8 << level, 8 << level), "level": level, "alpha": alpha}

    def step(networks: Any, optimizers: Any, batch: Any) -> dict[str, torch.Tensor]:
        generator, critic = networks["generator"], networks["critic"]
        real, at = batch["images"], (batch["level"], batch["alpha"])
        made = generator(torch.randn(len(real), 64), *at)
        leaf = real.clone().requires_grad_()
        scores = critic(leaf, *at)
        (slope,) = torch.autograd.grad(scores.sum(), leaf, create_graph=True)
        judged = F.softplus(critic(made.detach(), *at)).mean() + F.softplus(-scores).mean()
        optimizers["critic"].zero_grad()
        (judged + 5 * slope.square().sum((1, 2, 3)).mean()).backward()
        optimizers["critic"].step()
        loss = F.softplus(-critic(made, *at)).mean()
        optimizers["generator"].zero_grad()
        loss.backward()
        optimizers["generator"].step()
        return {"critic": judged, "generator": loss}

    return Recipe(model=lambda: {"generator": Grown(), "critic": Shrunk()}, data=lambda: batch, step=step,
                  optimizer=adams, micro_batch_size=16, max_steps=100)  # fmt: skip
