"""Fields in the weights of networks: rays, samples that follow a density, hashed grids, splats that come and go."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from families import family, mlp
from torch import nn

from surefoot import Recipe, recipe_of

field = family("neural_fields", steps=6)


def waves(x: torch.Tensor, levels: int) -> torch.Tensor:
    scaled = x.unsqueeze(-1) * 2.0 ** torch.arange(levels)
    return torch.cat([x, scaled.sin().flatten(-2), scaled.cos().flatten(-2)], -1)


def rays(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return 0.2 * torch.randn(count, 3), F.normalize(torch.randn(count, 3), dim=1), torch.rand(count, 3)


def composed(density: torch.Tensor, colours: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Colours along rays, and the weights of the samples."""
    gaps = torch.cat([t[:, 1:] - t[:, :-1], torch.full_like(t[:, :1], 1e10)], 1)
    alpha = 1 - torch.exp(-F.relu(density) * gaps)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    weights = alpha * through
    return (weights.unsqueeze(-1) * colours).sum(1), weights


@field
def coarse_and_fine() -> Recipe:
    """Two networks: the second looks where the first saw something. Points go through in chunks."""

    class Radiance(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(a, 96) for a in (39, 96, 96 + 39, 96))
            self.density, self.feature = nn.Linear(96, 1), nn.Linear(96, 96)
            self.view, self.colour = nn.Linear(96 + 27, 48), nn.Linear(48, 3)

        def forward(self, where: torch.Tensor, view: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            told = waves(where, 6)
            x = told
            for number, layer in enumerate(self.layers):
                x = F.relu(layer(torch.cat([told, x], -1) if number == 2 else x))
            colour = F.relu(self.view(torch.cat([self.feature(x), waves(view, 4)], -1)))
            return self.density(x).squeeze(-1), self.colour(colour).sigmoid()

    def drawn(middles: torch.Tensor, weights: torch.Tensor, count: int) -> torch.Tensor:
        share = (weights + 1e-5) / (weights + 1e-5).sum(-1, keepdim=True)
        sums = torch.cat([torch.zeros_like(share[:, :1]), share.cumsum(-1)], -1)
        u = torch.rand(len(sums), count).contiguous()
        above = torch.searchsorted(sums, u, right=True).clamp(max=sums.shape[1] - 1)
        below = (above - 1).clamp(min=0)
        low, high = sums.gather(1, below), sums.gather(1, above)
        gap = torch.where(high - low < 1e-5, 1.0, high - low)
        from_, to = middles.gather(1, below), middles.gather(1, above)
        return from_ + (u - low) / gap * (to - from_)

    def seen(network: nn.Module, origin: Any, way: Any, t: torch.Tensor, chunk: int = 4096) -> Any:
        where = (origin[:, None] + way[:, None] * t.unsqueeze(-1)).flatten(0, 1)
        views = way[:, None].expand(-1, t.shape[1], -1).flatten(0, 1)
        parts = [network(a, b) for a, b in zip(where.split(chunk), views.split(chunk), strict=True)]
        density, colours = (torch.cat(each) for each in zip(*parts, strict=True))
        density = density + torch.randn_like(density)
        return composed(density.view_as(t), colours.view(*t.shape, 3), t)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        origin, way, colours = batch
        edges = torch.linspace(2, 6, 33)
        t = edges[:-1] + (edges[1:] - edges[:-1]) * torch.rand(len(origin), 32)
        coarse, weights = seen(model["coarse"], origin, way, t)
        middles = 0.5 * (t[:, 1:] + t[:, :-1])
        more = drawn(middles, weights[:, 1:-1].detach(), 32)
        fine, _ = seen(model["fine"], origin, way, torch.cat([t, more], 1).sort(1).values)
        return F.mse_loss(coarse, colours) + F.mse_loss(fine, colours)

    return recipe_of(lambda: {"coarse": Radiance(), "fine": Radiance()}, rays(200), loss=loss,
                     optimizer=lambda p: torch.optim.Adam(p, lr=5e-4))  # fmt: skip


@field
def hashed_grid() -> Recipe:
    """Corners of grids of many sizes in hashed tables; samples in empty cells are skipped, and rays end early."""

    class Hashed(nn.Module):
        def __init__(self, levels: int = 8, rows: int = 2**14) -> None:
            super().__init__()
            self.rows, growth = rows, math.exp((math.log(256) - math.log(8)) / (levels - 1))
            self.sizes = [int(8 * growth**level) for level in range(levels)]
            self.tables = nn.ParameterList(nn.Parameter(torch.empty(rows, 2).uniform_(-1e-4, 1e-4)) for _ in self.sizes)
            self.density, self.colour = mlp(2 * levels, 16, 64, 1), mlp(15 + 15, 3, 64)
            self.register_buffer("primes", torch.tensor([1, 2654435761, 805459861]))
            self.register_buffer("corners", torch.cartesian_prod(*[torch.arange(2)] * 3))
            self.register_buffer("occupied", torch.ones(32, 32, 32))
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

        def encoded(self, where: torch.Tensor) -> torch.Tensor:
            out = []
            for size, table in zip(self.sizes, self.tables, strict=True):
                scaled = where * size
                low = scaled.floor().long()
                share = (scaled - low).unsqueeze(1)
                cells = low.unsqueeze(1) + self.corners
                mixed = cells * self.primes
                rows = (mixed[..., 0] ^ mixed[..., 1] ^ mixed[..., 2]) % self.rows
                weights = torch.where(self.corners.bool(), share, 1 - share).prod(-1, keepdim=True)
                out.append((table[rows] * weights).sum(1))
            return torch.cat(out, -1)

        def forward(self, where: torch.Tensor, view: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = self.density(self.encoded(where))
            return x[:, 0].clamp(max=8).exp(), self.colour(torch.cat([x[:, 1:], waves(view, 2)], -1)).sigmoid()

        @torch.no_grad()
        def update_occupied(self) -> None:
            cells = torch.randint(0, 32, (4000, 3))
            found = self.density(self.encoded((cells + torch.rand(4000, 3)) / 32))[:, 0].exp()
            self.occupied.mul_(0.8)
            x, y, z = cells.unbind(1)
            self.occupied[x, y, z] = torch.maximum(self.occupied[x, y, z], found)

    def step(model: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        origin, way, aim = batch
        if model.steps % 2 == 0:
            model.update_occupied()
        model.steps += 1
        t = (torch.arange(64) + torch.rand(len(origin), 1)) / 64 * 1.7
        where = 0.5 + 0.2 * origin[:, None] + way[:, None] * t.unsqueeze(-1) * 0.5
        inside = ((where >= 0) & (where < 1)).all(-1)
        cells = (where.clamp(0, 0.9999) * 32).long()
        kept = inside & (
            model.occupied[cells[..., 0], cells[..., 1], cells[..., 2]] > model.occupied.mean().clamp(max=0.9)
        )
        ray, place = kept.nonzero(as_tuple=True)
        density, colours = model(where[ray, place], way[ray])
        thick = density * 1.7 / 64
        sums = thick.cumsum(0)
        first = torch.searchsorted(ray, torch.arange(len(origin)))
        before = torch.cat([torch.zeros(1), sums])[first]
        through = torch.exp(-(sums - thick - before[ray]))
        alive = through > 1e-4
        weights = (through * (1 - torch.exp(-thick)))[alive]
        seen = torch.zeros(len(origin), 3).index_add(0, ray[alive], weights.unsqueeze(1) * colours[alive])
        full = torch.zeros(len(origin)).index_add(0, ray[alive], weights)
        loss = F.smooth_l1_loss(seen + (1 - full).unsqueeze(1), aim, beta=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def optimizer(model: Any) -> torch.optim.Optimizer:
        networks = [*model.density.parameters(), *model.colour.parameters()]
        groups = [{"params": model.tables.parameters()}, {"params": networks, "weight_decay": 1e-6}]
        return torch.optim.Adam(groups, lr=1e-2, betas=(0.9, 0.99), eps=1e-15)

    return recipe_of(Hashed, rays(256), step=step, optimizer=optimizer)


@field
def sphere_traced() -> Recipe:
    """A signed distance: rays step until they meet the surface, and the gradient there comes from its own equation."""

    class Surface(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                [nn.Linear(27, 128), nn.Linear(128, 128), nn.Linear(128, 128), nn.Linear(128, 65)]
            )
            self.colour = mlp(3 + 3 + 3 + 64, 3, 128)
            with torch.no_grad():
                self.layers[-1].bias[0] = 0.6

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            near = x.norm(dim=-1, keepdim=True)
            x = waves(x, 4)
            for layer in self.layers[:-1]:
                x = F.softplus(layer(x), beta=100)
            out = self.layers[-1](x)
            return torch.cat([near - 0.6 + 0.1 * out[:, :1], out[:, 1:]], 1)

        def slope(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            x = x.requires_grad_()
            out = self(x)
            (slope,) = torch.autograd.grad(out[:, 0].sum(), x, create_graph=True)
            return out[:, :1], out[:, 1:], slope

        @torch.no_grad()
        def traced(self, origin: torch.Tensor, way: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            t, active = torch.zeros(len(origin)), torch.ones(len(origin), dtype=torch.bool)
            hit = torch.zeros_like(active)
            for _ in range(24):
                places = active.nonzero().squeeze(1)
                if len(places) == 0:
                    break
                distance = self(origin[places] + t[places, None] * way[places])[:, 0]
                hit[places[distance.abs() < 5e-3]] = True
                t[places] += distance
                active = ~hit & (t < 3)
            return t, hit

    def loss(model: Any, batch: Any) -> torch.Tensor:
        origin, way, colours, mask = batch
        t, hit = model.traced(origin, way)
        total = torch.zeros(())
        met = hit & mask
        if met.any():
            here = (origin + t[:, None] * way)[met]
            distance, features, slope = model.slope(here)
            speed = (slope.detach() * way[met]).sum(1, keepdim=True)
            speed = torch.where(speed.abs() < 0.1, -0.1, speed)
            surface = here.detach() - way[met] * (distance - distance.detach()) / speed
            seen = model.colour(torch.cat([surface, slope, way[met], features], 1)).sigmoid()
            total = total + F.l1_loss(seen, colours[met], reduction="sum") / len(origin)
        wrong = ~met
        if wrong.any():
            ahead = origin[wrong, None] + torch.linspace(0.3, 3, 12)[:, None] * way[wrong, None]
            with torch.no_grad():
                nearest = model(ahead.flatten(0, 1))[:, 0].view(-1, 12).argmin(1)
            distance = model(ahead[torch.arange(len(ahead)), nearest])[:, 0]
            total = total + F.binary_cross_entropy_with_logits(-50 * distance, mask[wrong].float()) / 50
        _, _, slope = model.slope(torch.rand(400, 3) * 2 - 1)
        return total + 0.1 * (slope.norm(dim=1) - 1).square().mean()

    origin = F.normalize(torch.randn(400, 3), dim=1) * 1.6
    way = F.normalize(-origin + 0.6 * torch.randn(400, 3), dim=1)
    return recipe_of(Surface, (origin, way, torch.rand(400, 3), torch.rand(400) < 0.7), loss=loss)


@field
def splats() -> Recipe:
    """Gaussians on an image: those that pull hard are split, faint ones go, and the optimizer's state follows."""
    names = ("means", "scales", "turns", "colours", "faint")

    class Splats(nn.Module):
        def __init__(self, count: int = 400) -> None:
            super().__init__()
            self.means, self.scales = nn.Parameter(torch.rand(count, 2)), nn.Parameter(torch.full((count, 2), -3.0))
            self.turns, self.colours = nn.Parameter(torch.rand(count)), nn.Parameter(torch.rand(count, 3))
            self.faint = nn.Parameter(torch.randn(count))
            self.pulls, self.steps = torch.zeros(count), 0

        def forward(self, where: torch.Tensor) -> torch.Tensor:
            c, s = self.turns.cos(), self.turns.sin()
            turn = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
            spread = turn / self.scales.exp()[:, None]
            away = torch.einsum("pni,nij->pnj", where[:, None] - self.means, spread)
            weights = self.faint.sigmoid() * torch.exp(-0.5 * away.square().sum(-1))
            order = self.colours.sum(1).argsort()
            alpha = weights[:, order].clamp(max=0.99)
            through = torch.cumprod(torch.cat([torch.ones(len(where), 1), 1 - alpha[:, :-1]], 1), 1)
            return (alpha * through) @ self.colours[order]

    def replaced(model: Any, optimizer: Any, keep: torch.Tensor, new: dict[str, torch.Tensor]) -> None:
        for group in optimizer.param_groups:
            name, old = group["name"], group["params"][0]
            state = optimizer.state.pop(old)
            made = nn.Parameter(torch.cat([old[keep], new[name]]).detach())
            for moment in ("exp_avg", "exp_avg_sq"):
                state[moment] = torch.cat([state[moment][keep], torch.zeros_like(new[name])])
            group["params"] = [made]
            optimizer.state[made] = state
            setattr(model, name, made)

    @torch.no_grad()
    def densified(model: Any, optimizer: Any) -> None:
        hard = model.pulls > model.pulls.quantile(0.8)
        large = model.scales.exp().amax(1) > 0.05
        split, cloned = hard & large, hard & ~large
        new = {}
        for name in names:
            old = getattr(model, name)
            new[name] = torch.cat([old[cloned], old[split].repeat_interleave(2, 0)])
        count = int(cloned.sum())
        new["means"][count:] += torch.randn_like(new["means"][count:]) * new["scales"][count:].exp()
        new["scales"][count:] -= math.log(1.6)
        keep = (model.faint.sigmoid() > 0.1) & ~split
        replaced(model, optimizer, keep, new)
        model.pulls = torch.zeros(len(model.means))

    def step(model: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        where, aim = batch
        loss = 0.8 * F.l1_loss(model(where), aim) + 0.2 * F.mse_loss(model(where.flip(0)), aim.flip(0))
        loss.backward()
        model.steps += 1
        model.pulls += model.means.grad.norm(dim=1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if model.steps % 2 == 0:
            densified(model, optimizer)
        return loss

    def optimizer(model: Any) -> torch.optim.Optimizer:
        rates = dict(zip(names, (1e-3, 5e-3, 1e-3, 1e-2, 5e-2), strict=True))
        groups = [{"params": [getattr(model, each)], "lr": rates[each], "name": each} for each in names]
        return torch.optim.Adam(groups, eps=1e-15)

    def batch(number: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        where = torch.rand(size, 2)
        return where, torch.stack([where[:, 0], where[:, 1], (20 * where[:, 0]).sin() * 0.5 + 0.5], 1)

    return Recipe(model=Splats, data=lambda: batch, step=step, optimizer=optimizer, micro_batch_size=600,
                  max_steps=100)  # fmt: skip


@field
def sines() -> Recipe:
    """A network of sines that is told nothing but slopes and curvature, which are gradients of gradients."""

    class Sine(nn.Module):
        def __init__(self, into: int, out: int, first: bool = False) -> None:
            super().__init__()
            self.linear = nn.Linear(into, out)
            bound = 1 / into if first else math.sqrt(6 / into) / 30
            nn.init.uniform_(self.linear.weight, -bound, bound)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(30 * self.linear(x))

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        where, slopes, curved = batch
        x = where.clone().detach().requires_grad_(True)
        out = model(x)
        (slope,) = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)
        curvature = torch.zeros(len(x))
        for axis in range(2):
            curvature = curvature + torch.autograd.grad(slope[:, axis].sum(), x, create_graph=True)[0][:, axis]
        return F.mse_loss(slope / 10, slopes) + 1e-6 * F.mse_loss(curvature, curved)

    return recipe_of(
        lambda: nn.Sequential(Sine(2, 96, True), Sine(96, 96), Sine(96, 96), nn.Linear(96, 1)),
        (torch.rand(700, 2) * 2 - 1, torch.randn(700, 2), torch.randn(700)),
        loss=loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=1e-4),
    )


@field
def planes_that_grow() -> Recipe:
    """A scene as planes and lines whose products are summed; their resolution is raised as training goes on."""

    class Planes(nn.Module):
        def __init__(self, size: int = 24) -> None:
            super().__init__()
            self.planes = nn.ParameterList(nn.Parameter(0.1 * torch.randn(1, 20, size, size)) for _ in range(3))
            self.lines = nn.ParameterList(nn.Parameter(0.1 * torch.randn(1, 20, size, 1)) for _ in range(3))
            self.basis, self.colour = nn.Linear(36, 20, bias=False), mlp(20 + 27, 3, 96)
            self.steps = 0

        def grown(self, size: int) -> None:
            for number in range(3):
                plane, line = self.planes[number].data, self.lines[number].data
                self.planes[number] = nn.Parameter(
                    F.interpolate(plane, (size, size), mode="bilinear", align_corners=True)
                )
                self.lines[number] = nn.Parameter(F.interpolate(line, (size, 1), mode="bilinear", align_corners=True))

        def forward(self, where: torch.Tensor, view: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            parts = []
            for (a, b, c), plane, line in zip(((0, 1, 2), (0, 2, 1), (1, 2, 0)), self.planes, self.lines, strict=True):
                flat = where[:, [a, b]].view(1, -1, 1, 2)
                along = torch.stack([torch.zeros_like(where[:, c]), where[:, c]], -1).view(1, -1, 1, 2)
                parts.append(
                    F.grid_sample(plane, flat, align_corners=True) * F.grid_sample(line, along, align_corners=True)
                )
            x = torch.cat(parts, 1)[0, :, :, 0].view(3, 20, -1)
            density = F.softplus(x[:, :8].sum((0, 1)) - 2)
            seen = self.basis(x[:, 8:].flatten(0, 1).t())
            return density, self.colour(torch.cat([seen, waves(view, 4)], -1)).sigmoid()

        def smooth(self) -> torch.Tensor:
            across = [each.diff(dim=2).square().mean() + each.diff(dim=3).square().mean() for each in self.planes]
            return torch.stack(across).sum()

    def optimizer(model: Any, lr: float = 0.02) -> torch.optim.Optimizer:
        grids, rest = [*model.planes, *model.lines], [*model.basis.parameters(), *model.colour.parameters()]
        return torch.optim.Adam([{"params": grids, "lr": lr}, {"params": rest, "lr": lr / 20}], betas=(0.9, 0.99))

    def step(model: Any, optimizers: Any, batch: Any) -> torch.Tensor:
        origin, way, aim = batch
        model.steps += 1
        if model.steps in (3, 5):
            model.grown({3: 48, 5: 80}[model.steps])
            optimizers.param_groups[0]["params"] = [*model.planes, *model.lines]
            optimizers.state.clear()
        t = torch.linspace(0.1, 1.6, 48) + torch.rand(len(origin), 1) * 0.03
        where = (origin[:, None] + way[:, None] * t.unsqueeze(-1)) / 1.5
        inside = (where.abs() <= 1).all(-1)
        density, colours = torch.zeros(t.shape), torch.zeros(*t.shape, 3)
        found = model(where[inside], way[:, None].expand_as(where)[inside])
        density[inside], colours[inside] = found
        seen, weights = composed(25 * density, colours, t)
        loss = F.mse_loss(seen + (1 - weights.sum(1, keepdim=True)), aim)
        total = loss + 1e-2 * model.smooth() + 1e-4 * sum(each.abs().mean() for each in model.planes)
        optimizers.zero_grad()
        total.backward()
        optimizers.step()
        return loss

    return recipe_of(Planes, rays(256), step=step, optimizer=optimizer)
