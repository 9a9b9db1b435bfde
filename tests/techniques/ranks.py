"""What ranks do in the tests of techniques: they take steps and return what came of them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from surefoot import Recipe, load_recipe
from surefoot.data.batches import batches_of
from surefoot.recipe.context_part import ContextPart
from surefoot.step import Step
from surefoot.techniques import accumulate, ddp
from surefoot.techniques.context_parallel import Ranks, attention
from surefoot.world.world import RealWorld

SMALL = ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=2", "global_batch_tokens=512"]
"""Eight micro-batches: two for each of four ranks."""


def losses(words: list[str], steps: int = 20) -> dict[str, Any]:
    """A small gpt, step by step."""
    recipe = load_recipe("gpt", [*SMALL, *words])
    with RealWorld() as world:
        step = Step(recipe, world)
        batches = batches_of(recipe, rank=step.layout.data_rank, ranks=step.layout.data_ranks)
        outcomes = [step(world.take(batches) for _ in range(step.micro_batches)) for _ in range(steps)]
        return {
            "losses": [each.loss.item() for each in outcomes],
            "norms": [each.grad_norm.item() for each in outcomes],
            "counts": [float(each.count) for each in outcomes],
            "choices": step.choices(),
            "weights": {name: whole(each) for name, each in step.model.state_dict().items()},
        }


LENGTHS = [1, 40, 1, 2, 1, 33, 1, 1, 3, 64, 1, 1, 1, 17, 2, 1]
"""Of samples in their order: of two ranks that take turns, one gets nearly all tokens."""


class Reader(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(32, 16)
        self.register_buffer("seen", torch.zeros(16))
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.1)) for _ in range(2)
        )
        self.out = torch.nn.Linear(16, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = x + block(x).tanh()
        if self.training:
            self.seen.mul_(0.5).add_(x.detach().mean((0, 1)))  # of what its own rank sees
        return self.out(x)


class Ragged(torch.utils.data.Dataset):
    """Sequences of very different lengths; with `broken`, one sample makes the loss NaN."""

    draws_randomness = False

    def __init__(self, broken: int | None) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, float]:
        from surefoot.data.order import sample_ids
        from surefoot.randomness import derive

        place = sample_ids(len(LENGTHS), derive(0, "order"), 0, len(LENGTHS)).tolist().index(number)
        tokens = torch.arange(LENGTHS[place]) * (number + 3) % 32
        return tokens, float("nan") if place == self.broken else 1.0


def summed(anew: bool) -> torch.Tensor:
    """The gradients of a second backward on replicas; `anew`, on replicas that were made between the two."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp_replicate",))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    for step in range(2):
        if step == 0 or anew:
            replicas = ddp.apply(model, mesh)
        drawn = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + rank))
        replicas.zero_grad(set_to_none=True)
        replicas(drawn).square().sum().backward()
    return torch.cat([each.grad.flatten() for each in model.parameters()])


def padded(samples: list[tuple[torch.Tensor, float]]) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.nn.utils.rnn.pad_sequence([each for each, _ in samples], batch_first=True, padding_value=-1)
    return tokens, torch.tensor([factor for _, factor in samples])


def of_tokens(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, factors = batch
    logits = model(tokens.clamp(min=0)).float()
    logits *= factors[:, None, None]  # in place: what the last layer hands on is a view, and fully_shard minds
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="sum", ignore_index=-1)
    return loss, (tokens >= 0).sum()


def ragged(settings: dict[str, Any], broken: int | None = None, steps: int = 3) -> dict[str, Any]:
    """Steps over sequences of very different lengths, and what every rank holds in the end."""
    recipe = of_ragged(broken, **settings)
    with RealWorld() as world:
        step = Step(recipe, world)
        batches = batches_of(recipe, rank=step.layout.data_rank, ranks=step.layout.data_ranks)
        outcomes = [step(world.take(batches) for _ in range(step.micro_batches)) for _ in range(steps)]
        return {
            "losses": [each.loss.item() for each in outcomes],
            "updated": [each.updated for each in outcomes],
            "scale": step.scaler.get_scale(),
            "choices": step.choices(),
            "state": {name: whole(each) for name, each in step.model.state_dict().items()},
        }


def of_ragged(broken: int | None = None, **settings: Any) -> Recipe:
    return Recipe(
        model=Reader,
        data=lambda: Ragged(broken),
        loss=of_tokens,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        collate=padded,
        micro_batch_size=1,
        global_batch_tokens=len(LENGTHS),
        max_grad_norm=0.5,
        **settings,
    )


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def gradients(words: list[str], double: bool = False) -> dict[str, torch.Tensor]:
    """The gradients of the first step of a small gpt, before clipping."""
    recipe = load_recipe("gpt", [*SMALL, *words])
    with RealWorld() as world:
        step = Step(recipe, world)
        if double:
            step.model.double()
        batches = batches_of(recipe, rank=step.layout.data_rank, ranks=step.layout.data_ranks)
        sums = step.forward_backward(world.take(batches) for _ in range(step.micro_batches))
        count = sums.count * world.ranks // step.layout.tp
        parts = step.layout.data_ranks * step.layout.cp
        accumulate.normalise(step.parameters, sums.divisor * parts, count)
        return {name: whole(each.grad) for name, each in step.model.named_parameters()}


def attended(kinds: list[tuple[str, bool, int]]) -> dict[tuple[str, bool, int], float]:
    """How far attention over ranks, and its gradients, are from those over whole sequences."""
    rank, count = torch.distributed.get_rank(), torch.distributed.get_world_size()
    group, found = torch.distributed.group.WORLD, {}
    for by, causal, heads in kinds:
        torch.manual_seed(0)
        shapes = [(2, each, 16, 8) for each in (4, heads, heads, 4)]
        *whole_ones, pulls = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
        ranks = Ranks(group, ContextPart(rank, count, by), "cpu")
        at = ranks.part.positions(torch.empty(1, 16))
        mine = [each[:, :, at].clone().requires_grad_() for each in whole_ones]
        how = {"is_causal": causal, "enable_gqa": heads < 4}
        out = attention(ranks, F.scaled_dot_product_attention, *mine, **how)
        (out * pulls[:, :, at]).sum().backward()
        for each in whole_ones:
            each.requires_grad_()
        wanted = F.scaled_dot_product_attention(*whole_ones, **how)
        (wanted * pulls).sum().backward()
        pairs = [
            (out, wanted[:, :, at]),
            *((here.grad, all_of.grad[:, :, at]) for here, all_of in zip(mine, whole_ones, strict=True)),
        ]
        found[by, causal, heads] = max((one - other).abs().max().item() for one, other in pairs)
    return found


def evaluated(words: list[str], batches: int = 4) -> float:
    """The held-out loss of a small gpt over this many micro-batches."""
    recipe = load_recipe("gpt", [*SMALL, *words])
    with RealWorld() as world:
        step = Step(recipe, world)
        loaded = batches_of(recipe, rank=step.layout.data_rank, ranks=step.layout.data_ranks)
        scores = step.evaluate(world.take(loaded) for _ in range(batches // step.layout.data_ranks))
        return float(scores.loss)
