"""Agents: replay with priorities, rollouts, twin critics, carried states, imagined futures, search by trees."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from families import family, mlp
from torch import nn

from surefoot import Recipe, recipe_of

control = family("control", steps=5)


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, share: float) -> None:
    for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
        a.lerp_(b, share)


class Poles:
    """Many carts with poles, moved together."""

    def __init__(self, count: int) -> None:
        self.state = torch.empty(count, 4).uniform_(-0.05, 0.05)

    def step(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, v, angle, spin = self.state.unbind(1)
        force = 10.0 * (2 * action.float() - 1)
        push = (force + 0.05 * spin.square() * angle.sin()) / 1.1
        turn = (9.8 * angle.sin() - angle.cos() * push) / (0.5 * (4 / 3 - 0.1 * angle.cos().square() / 1.1))
        pulled = push - 0.05 * turn * angle.cos() / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * pulled, angle + 0.02 * spin, spin + 0.02 * turn], 1)
        done = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.21)
        seen = self.state.clone()
        self.state[done] = torch.empty(int(done.sum()), 4).uniform_(-0.05, 0.05)
        return seen, torch.ones(len(done)), done


class Priorities:
    """Transitions in a ring of arrays, and a tree of sums from which they are drawn by priority."""

    def __init__(self, size: int = 4096) -> None:
        self.size, self.count, self.next = size, 0, 0
        self.frames = np.zeros((size, 2, 32, 32), np.uint8)
        self.rest = np.zeros((size, 3), np.float32)
        self.tree = np.zeros(2 * size)
        for _ in range(600):
            frame = np.random.randint(0, 255, (2, 32, 32), np.uint8)
            self.add(frame, random.randrange(6), random.choice((-1, 0, 0, 1)), random.random() < 0.05)

    def add(self, frames: Any, action: int, reward: float, done: bool) -> None:
        self.frames[self.next], self.rest[self.next] = frames, (action, reward, done)
        self.update(self.next, 1.0)
        self.next, self.count = (self.next + 1) % self.size, min(self.count + 1, self.size)

    def update(self, place: int, priority: float) -> None:
        at = place + self.size
        change = priority - self.tree[at]
        while at >= 1:
            self.tree[at] += change
            at //= 2

    def drawn(self, total: float) -> int:
        at = 1
        while at < self.size:
            at *= 2
            if total > self.tree[at] and self.tree[at + 1] > 0:
                total -= self.tree[at]
                at += 1
        return min(at - self.size, self.count - 2)

    def batch(self, number: int, size: int) -> dict[str, Any]:
        share = self.tree[1] / size
        places = [self.drawn(share * (each + random.random())) for each in range(size)]
        chance = torch.tensor([self.tree[each + self.size] / self.tree[1] for each in places], dtype=torch.float32)
        weights = (self.count * chance.clamp(min=1e-8)) ** -0.4
        frames = torch.from_numpy(self.frames[places]).float() / 255
        after = torch.from_numpy(self.frames[[each + 1 for each in places]]).float() / 255
        rest = torch.from_numpy(self.rest[places])
        return {"frames": frames, "after": after, "action": rest[:, 0].long(), "reward": rest[:, 1],
                "done": rest[:, 2], "weights": weights / weights.max(), "places": places, "memory": self}  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: torch.from_numpy(getattr(self, name)) for name in ("frames", "rest", "tree")}
        return {**arrays, "count": self.count, "next": self.next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("frames", "rest", "tree"):
            setattr(self, name, state[name].numpy())
        self.count, self.next = state["count"], state["next"]


class Noisy(nn.Module):
    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        bound = into**-0.5
        self.weight, self.bias = (
            nn.Parameter(torch.empty(out, into).uniform_(-bound, bound)),
            nn.Parameter(torch.zeros(out)),
        )
        self.weight_spread = nn.Parameter(torch.full((out, into), 0.5 * bound))
        self.bias_spread = nn.Parameter(torch.full((out,), 0.5 * bound))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return F.linear(x, self.weight, self.bias)
        a, b = (torch.randn(size) for size in self.weight.shape[::-1])
        a, b = a.sign() * a.abs().sqrt(), b.sign() * b.abs().sqrt()
        return F.linear(x, self.weight + self.weight_spread * torch.outer(b, a), self.bias + self.bias_spread * b)


@control
def values_by_priority() -> Recipe:
    """Duelling distributions of values, noisy layers, a target that is copied, and new transitions in every step."""
    atoms = torch.linspace(-10, 10, 51)

    class Values(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(2, 32, 4, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
                nn.Flatten(),
            )  # fmt: skip
            self.value = nn.Sequential(Noisy(1600, 128), nn.ReLU(), Noisy(128, 51))
            self.gain = nn.Sequential(Noisy(1600, 128), nn.ReLU(), Noisy(128, 6 * 51))

        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            x = self.body(frames)
            gain = self.gain(x).view(-1, 6, 51)
            return (self.value(x).unsqueeze(1) + gain - gain.mean(1, keepdim=True)).log_softmax(-1)

    def networks() -> dict[str, nn.Module]:
        online = Values()
        target = copy.deepcopy(online).requires_grad_(False)
        target.register_buffer("steps", torch.zeros((), dtype=torch.long))
        return {"online": online, "target": target}

    def step(networks: Any, optimizer: Any, batch: Any) -> torch.Tensor:
        online, target, rows = networks["online"], networks["target"], torch.arange(len(batch["action"]))
        with torch.no_grad():
            best = (online(batch["after"]).exp() * atoms).sum(-1).argmax(-1)
            chances = target(batch["after"])[rows, best].exp()
            moved = (batch["reward"][:, None] + 0.97 * (1 - batch["done"][:, None]) * atoms).clamp(-10, 10)
            place = (moved + 10) / 0.4
            low, high = place.floor().long(), place.ceil().long()
            low[(high > 0) & (low == high)] -= 1
            high[(low < 50) & (low == high)] += 1
            aim = torch.zeros_like(chances)
            aim.scatter_add_(1, low, chances * (high - place))
            aim.scatter_add_(1, high, chances * (place - low))
        each = -(aim * online(batch["frames"])[rows, batch["action"]]).sum(1)
        loss = (batch["weights"] * each).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 10)
        optimizer.step()
        memory = batch["memory"]
        for at, error in zip(batch["places"], each.detach().tolist(), strict=True):
            memory.update(at, (abs(error) + 1e-6) ** 0.5)
        target.steps += 1
        if target.steps % 3 == 0:
            target.load_state_dict({**online.state_dict(), "steps": target.steps})
        with torch.no_grad():
            frame = batch["after"][:1]
            action = int((online(frame).exp() * atoms).sum(-1).argmax())
        memory.add(np.roll((frame[0].numpy() * 255).astype(np.uint8), action, 1), action, 0.0, random.random() < 0.05)
        return loss

    return Recipe(model=networks, data=Priorities, step=step, micro_batch_size=32, max_steps=100,
                  optimizer=lambda n: torch.optim.Adam(n["online"].parameters(), lr=1e-4, eps=1.5e-4))  # fmt: skip


@control
def clipped_policy() -> Recipe:
    """A rollout of many poles, advantages from its end to its start, and epochs that stop once the policy moved far."""

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.policy, self.value = mlp(4, 2, 128, act=nn.Tanh), mlp(4, 1, 128, act=nn.Tanh)
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("square", torch.ones(4))
            self.register_buffer("count", torch.tensor(1e-4))

        @torch.no_grad()
        def watched(self, seen: torch.Tensor) -> None:
            total = self.count + len(seen)
            self.mean += (seen.mean(0) - self.mean) * len(seen) / total
            self.square += (seen.square().mean(0) - self.square) * len(seen) / total
            self.count.copy_(total)

        def forward(self, seen: torch.Tensor) -> tuple[Any, torch.Tensor]:
            seen = ((seen - self.mean) / (self.square - self.mean.square()).clamp(min=1e-4).sqrt()).clamp(-5, 5)
            return torch.distributions.Categorical(logits=self.policy(seen)), self.value(seen).squeeze(-1)

    def step(agent: Any, optimizer: Any, batch: Any) -> dict[str, torch.Tensor]:
        world = Poles(len(batch[0]))
        world.state = batch[0].clone()
        kept: dict[str, list[torch.Tensor]] = {
            name: [] for name in ("seen", "action", "log", "value", "reward", "done")
        }
        with torch.no_grad():
            for _ in range(64):
                seen = world.state.clone()
                agent.watched(seen)
                policy, value = agent(seen)
                action = policy.sample()
                _, reward, done = world.step(action)
                for name, each in zip(kept, (seen, action, policy.log_prob(action), value, reward, done), strict=True):
                    kept[name].append(each)
            _, after = agent(world.state)
            rolled = {name: torch.stack(each) for name, each in kept.items()}
            gains, last = torch.zeros_like(rolled["reward"]), torch.zeros(len(after))
            for t in reversed(range(64)):
                going = 1 - rolled["done"][t].float()
                following = after if t == 63 else rolled["value"][t + 1]
                last = rolled["reward"][t] + 0.99 * going * following - rolled["value"][t] + 0.99 * 0.95 * going * last
                gains[t] = last
            rolled["return"], rolled["gain"] = gains + rolled["value"], gains
        flat = {name: each.flatten(0, 1) for name, each in rolled.items()}
        for _ in range(4):
            for places in torch.randperm(len(flat["log"])).split(512):
                part = {name: each[places] for name, each in flat.items()}
                policy, value = agent(part["seen"])
                change = policy.log_prob(part["action"]) - part["log"]
                gain = (part["gain"] - part["gain"].mean()) / (part["gain"].std() + 1e-8)
                surrogate = -torch.min(change.exp() * gain, change.exp().clamp(0.8, 1.2) * gain).mean()
                near = part["value"] + (value - part["value"]).clamp(-0.2, 0.2)
                worth = torch.max((value - part["return"]).square(), (near - part["return"]).square()).mean()
                loss = surrogate + 0.25 * worth - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
            if ((change.exp() - 1) - change).mean().detach() > 0.02:
                break
        return {"loss": loss, "value": worth}

    begun = torch.empty(32, 4).uniform_(-0.05, 0.05)
    return recipe_of(Agent, (begun,), step=step, optimizer=lambda m: torch.optim.Adam(m.parameters(), 2.5e-3, eps=1e-5))


@control
def soft_actor() -> Recipe:
    """Twin critics with slow targets, an actor that is squashed, a temperature of its own; the memory is a buffer."""

    class Memory(nn.Module):
        def __init__(self, size: int = 5000) -> None:
            super().__init__()
            self.register_buffer("rows", torch.randn(size, 24 + 6 + 1 + 24 + 1))
            self.register_buffer("count", torch.tensor(500))

        def drawn(self, size: int) -> tuple[torch.Tensor, ...]:
            places = torch.randint(0, int(self.count.clamp(max=len(self.rows))), (size,))
            return self.rows[places].split((24, 6, 1, 24, 1), 1)

        def add(self, rows: torch.Tensor) -> None:
            self.rows[(self.count + torch.arange(len(rows))) % len(self.rows)] = rows
            self.count += len(rows)

    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = mlp(30, 1, 256), mlp(30, 1, 256)

        def forward(self, seen: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = torch.cat([seen, action], 1)
            return self.one(x), self.two(x)

    def networks() -> dict[str, nn.Module]:
        critic = Twins()
        return {"actor": mlp(24, 12, 256), "critic": critic, "target": copy.deepcopy(critic).requires_grad_(False),
                "temperature": nn.ParameterList([nn.Parameter(torch.zeros(()))]), "memory": Memory()}  # fmt: skip

    def acted(actor: nn.Module, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = actor(seen).chunk(2, 1)
        policy = torch.distributions.Normal(mean, spread.clamp(-5, 2).exp())
        raw = policy.rsample()
        log = policy.log_prob(raw) - 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return raw.tanh(), log.sum(1, keepdim=True)

    def step(networks: Any, optimizers: Any, batch: Any) -> dict[str, torch.Tensor]:
        actor, critic, target, memory = (networks[name] for name in ("actor", "critic", "target", "memory"))
        (heat,) = networks["temperature"]
        with torch.no_grad():
            action, _ = acted(actor, batch[0])
            after = 0.9 * batch[0] + 0.1 * torch.cat([action] * 4, 1) + 0.05 * torch.randn_like(batch[0])
            memory.add(
                torch.cat([batch[0], action, -after.norm(dim=1, keepdim=True), after, torch.zeros(len(after), 1)], 1)
            )
        seen, action, reward, after, done = memory.drawn(256)
        with torch.no_grad():
            following, log = acted(actor, after)
            aim = reward + 0.99 * (1 - done) * (torch.min(*target(after, following)) - heat.exp() * log)
        losses = {"critic": sum(F.mse_loss(each, aim) for each in critic(seen, action))}
        optimizers["critic"].zero_grad()
        losses["critic"].backward()
        optimizers["critic"].step()
        critic.requires_grad_(False)
        action, log = acted(actor, seen)
        losses["actor"] = (heat.exp().detach() * log - torch.min(*critic(seen, action))).mean()
        optimizers["actor"].zero_grad()
        losses["actor"].backward()
        optimizers["actor"].step()
        critic.requires_grad_(True)
        losses["heat"] = -(heat * (log.detach() - 6)).mean()
        optimizers["temperature"].zero_grad()
        losses["heat"].backward()
        optimizers["temperature"].step()
        follow(target, critic, 0.005)
        return losses

    def optimizers(networks: Any) -> dict[str, torch.optim.Optimizer]:
        return {
            name: torch.optim.Adam(networks[name].parameters(), lr=3e-4) for name in ("actor", "critic", "temperature")
        }

    return recipe_of(networks, (torch.randn(16, 24),), step=step, optimizer=optimizers)


@control
def recurrent_actor() -> Recipe:
    """An LSTM whose state lives on after each rollout, is cut from its past, and is cleared where an episode ended."""

    class Recurrent(nn.Module):
        def __init__(self, worlds: int = 24) -> None:
            super().__init__()
            self.eyes, self.cell = mlp(2, 64, 64, 1, nn.Tanh), nn.LSTMCell(64, 128)
            self.policy, self.value = nn.Linear(128, 2), nn.Linear(128, 1)
            self.world = Poles(worlds)
            for name in ("hidden", "kept"):
                self.register_buffer(name, torch.zeros(worlds, 128))

    def step(agent: Any, optimizer: Any, batch: Any) -> dict[str, torch.Tensor]:
        hidden, kept = agent.hidden.detach(), agent.kept.detach()
        logs, values, rewards, goings, entropies = [], [], [], [], []
        for _ in range(20):
            hidden, kept = agent.cell(agent.eyes(agent.world.state[:, ::2].clone()), (hidden, kept))
            policy = torch.distributions.Categorical(logits=agent.policy(hidden))
            action = policy.sample()
            _, reward, done = agent.world.step(action)
            logs.append(policy.log_prob(action))
            values.append(agent.value(hidden).squeeze(1))
            entropies.append(policy.entropy())
            rewards.append(reward)
            goings.append(1 - done.float())
            hidden, kept = hidden * goings[-1][:, None], kept * goings[-1][:, None]
        with torch.no_grad():
            agent.hidden, agent.kept = hidden.detach(), kept.detach()
            gain, aims = agent.value(hidden).squeeze(1), []
            for reward, going in zip(reversed(rewards), reversed(goings), strict=True):
                gain = reward + 0.98 * going * gain
                aims.insert(0, gain)
        missed = torch.stack(aims) - torch.stack(values)
        losses = {
            "policy": -(torch.stack(logs) * missed.detach()).mean(),
            "value": missed.square().mean(),
            "entropy": -torch.stack(entropies).mean(),
        }
        (losses["policy"] + 0.5 * losses["value"] + 0.01 * losses["entropy"]).backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return losses

    def optimizer(agent: Any) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(agent.parameters(), lr=7e-4, alpha=0.99, eps=1e-5)

    return recipe_of(Recurrent, (torch.zeros(1, 1),), step=step, optimizer=optimizer)


@control
def imagined() -> Recipe:
    """A model of the world with states that are drawn; the actor learns in futures that only the model has seen."""

    class World(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.eyes = nn.Sequential(nn.Conv2d(3, 16, 4, 2), nn.ELU(), nn.Conv2d(16, 32, 4, 2), nn.ELU(), nn.Flatten())
            self.into, self.cell = nn.Linear(64 + 4, 128), nn.GRUCell(128, 128)
            self.prior, self.posterior = mlp(128, 64, 128, 1, nn.ELU), mlp(128 + 1152, 64, 128, 1, nn.ELU)
            self.picture = nn.Sequential(
                nn.Linear(192, 512), nn.Unflatten(1, (128, 2, 2)), nn.ConvTranspose2d(128, 32, 5, 3, 1), nn.ELU(),
                nn.ConvTranspose2d(32, 16, 6, 2), nn.ELU(), nn.ConvTranspose2d(16, 3, 4, 2, 1),
            )  # fmt: skip
            self.reward, self.going = mlp(192, 1, 128, 1, nn.ELU), mlp(192, 1, 128, 1, nn.ELU)

        def drawn(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logits = logits.view(-1, 8, 8)
            chance = 0.99 * logits.softmax(-1) + 0.01 / 8
            hard = torch.distributions.OneHotCategorical(probs=chance).sample()
            return (hard + chance - chance.detach()).flatten(1), chance.log()

        def moved(self, deep: torch.Tensor, chosen: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
            return self.cell(F.elu(self.into(torch.cat([chosen, action], 1))), deep)

    def divergence(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.exp() * (a - b)).sum((1, 2)).clamp(min=1).mean()

    def step(networks: Any, optimizers: Any, batch: Any) -> dict[str, torch.Tensor]:
        world, actor, critic, slow = (networks[name] for name in ("world", "actor", "critic", "slow"))
        frames, actions, rewards, going = batch
        samples, length = frames.shape[:2]
        told = world.eyes(frames.flatten(0, 1)).view(samples, length, -1)
        deep, chosen, states, apart = torch.zeros(samples, 128), torch.zeros(samples, 64), [], torch.zeros(())
        for t in range(length):
            deep = world.moved(deep, chosen, actions[:, t])
            prior = world.drawn(world.prior(deep))[1]
            chosen, posterior = world.drawn(world.posterior(torch.cat([deep, told[:, t]], 1)))
            apart = apart + 0.8 * divergence(posterior.detach(), prior) + 0.2 * divergence(posterior, prior.detach())
            states.append(torch.cat([deep, chosen], 1))
        flat = torch.stack(states, 1).flatten(0, 1)
        seen = F.mse_loss(world.picture(flat), frames.flatten(0, 1), reduction="sum") / len(flat)
        told_going = F.binary_cross_entropy_with_logits(world.going(flat).squeeze(1), going.flatten())
        model = seen + F.mse_loss(world.reward(flat).squeeze(1), rewards.flatten()) + told_going + 0.1 * apart
        optimizers["world"].zero_grad()
        model.backward()
        nn.utils.clip_grad_norm_(world.parameters(), 100)
        optimizers["world"].step()

        world.requires_grad_(False)
        deep, chosen = flat.detach().split((128, 64), 1)
        path, entropy = [torch.cat([deep, chosen], 1)], torch.zeros(())
        for _ in range(8):
            policy = torch.distributions.OneHotCategoricalStraightThrough(logits=actor(path[-1].detach()))
            deep = world.moved(deep, chosen, policy.rsample())
            chosen, _ = world.drawn(world.prior(deep))
            path.append(torch.cat([deep, chosen], 1))
            entropy = entropy + policy.entropy().mean()
        far = torch.stack(path)
        reward, keep, worth = world.reward(far), 0.99 * world.going(far).sigmoid(), slow(far)
        aims, last = [], worth[-1]
        for t in reversed(range(8)):
            last = reward[t + 1] + keep[t + 1] * (0.05 * worth[t + 1] + 0.95 * last)
            aims.insert(0, last)
        aim = torch.stack(aims)
        acting = -aim.mean() - 1e-3 * entropy
        optimizers["actor"].zero_grad()
        acting.backward()
        optimizers["actor"].step()
        world.requires_grad_(True)
        valued = F.mse_loss(critic(far[:-1].detach()), aim.detach())
        optimizers["critic"].zero_grad()
        valued.backward()
        optimizers["critic"].step()
        follow(slow, critic, 0.02)
        return {"model": model, "actor": acting, "critic": valued}

    def networks() -> dict[str, nn.Module]:
        critic = mlp(192, 1, 128, act=nn.ELU)
        slow = copy.deepcopy(critic).requires_grad_(False)
        return {"world": World(), "actor": mlp(192, 4, 128, act=nn.ELU), "critic": critic, "slow": slow}

    def optimizers(networks: Any) -> dict[str, torch.optim.Optimizer]:
        rates = {"world": 2e-4, "actor": 4e-5, "critic": 1e-4}
        return {
            name: torch.optim.AdamW(networks[name].parameters(), lr=lr, weight_decay=1e-6) for name, lr in rates.items()
        }

    actions = F.one_hot(torch.randint(0, 4, (6, 10)), 4).float()
    batch = torch.rand(6, 10, 3, 32, 32) - 0.5, actions, torch.randn(6, 10), (torch.rand(6, 10) < 0.95).float()
    return recipe_of(networks, batch, step=step, optimizer=optimizers)


class Node:
    def __init__(self, prior: float) -> None:
        self.prior, self.visits, self.total = prior, 0, 0.0
        self.children: dict[int, Node] = {}

    def value(self) -> float:
        return self.total / self.visits if self.visits else 0.0

    def wanted(self, scale: float) -> float:
        return 1.5 * self.prior * scale / (1 + self.visits) - self.value()


@control
def searched_games() -> Recipe:
    """A network that plays itself: each move is searched with a tree, and the games become the data of the update."""
    ways = (1, (0, 1), range(5)), (5, range(5), (0, 1)), (6, (0, 1), (0, 1)), (4, (3, 4), (0, 1))
    lines = [torch.tensor([y * 5 + x + d * k for k in range(4)]) for d, xs, ys in ways for x in xs for y in ys]

    class Player(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into = nn.Conv2d(2, 48, 3, 1, 1)
            self.blocks = nn.ModuleList(
                nn.Sequential(
                    nn.Conv2d(48, 48, 3, 1, 1), nn.BatchNorm2d(48), nn.ReLU(), nn.Conv2d(48, 48, 3, 1, 1),
                    nn.BatchNorm2d(48),
                )
                for _ in range(3)
            )  # fmt: skip
            self.policy, self.value = (
                nn.Linear(48 * 25, 25),
                nn.Sequential(nn.Linear(48 * 25, 64), nn.ReLU(), nn.Linear(64, 1)),
            )
            self.games: list[tuple[torch.Tensor, torch.Tensor, float]] = []

        def forward(self, board: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = F.relu(self.into(torch.stack([board == 1, board == -1], 1).float().view(-1, 2, 5, 5)))
            for block in self.blocks:
                x = F.relu(x + block(x))
            return self.policy(x.flatten(1)), torch.tanh(self.value(x.flatten(1))).squeeze(1)

    def ended(board: torch.Tensor) -> bool:
        return any(bool((board[line] == -1).all()) for line in lines)

    def searched(player: Any, board: torch.Tensor, visits: int = 10) -> torch.Tensor:
        root = Node(1.0)
        for _ in range(visits):
            node, here, path = root, board.clone(), [root]
            while node.children:
                scale = math.sqrt(node.visits + 1)
                move = max(node.children, key=lambda each: node.children[each].wanted(scale))
                node = node.children[move]
                here[move] = 1
                here = -here
                path.append(node)
            if ended(here):
                worth = -1.0
            elif not (here == 0).any():
                worth = 0.0
            else:
                scores, told = player(here[None])
                free = (here == 0).nonzero().flatten().tolist()
                chances = scores[0, free].softmax(0).tolist()
                node.children = {move: Node(chance) for move, chance in zip(free, chances, strict=True)}
                worth = float(told)
            for each in reversed(path):
                each.visits, each.total = each.visits + 1, each.total + worth
                worth = -worth
        counts = torch.zeros(25)
        for move, child in root.children.items():
            counts[move] = child.visits
        return counts / counts.sum()

    @torch.no_grad()
    def played(player: Any) -> None:
        player.eval()
        board, record = torch.zeros(25), []
        while len(record) < 6 and not ended(board) and (board == 0).any():
            chances = searched(player, board)
            record.append((board.clone(), chances))
            board[int(torch.multinomial(chances, 1))] = 1
            board = -board
        result = -1.0 if ended(board) else 0.0
        for seen, chances in reversed(record):
            result = -result
            player.games.append((seen, chances, result))
        player.train()

    def step(player: Any, optimizer: Any, batch: Any) -> dict[str, torch.Tensor]:
        for _ in range(2):
            played(player)
        player.games = player.games[-400:]
        boards, chances, results = zip(*random.choices(player.games, k=64), strict=True)
        scores, worth = player(torch.stack(boards))
        losses = {
            "policy": F.cross_entropy(scores, torch.stack(chances)),
            "value": F.mse_loss(worth, torch.tensor(results)),
        }
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        return losses

    def optimizer(player: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(player.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)

    return recipe_of(Player, (torch.zeros(1, 1),), step=step, optimizer=optimizer)
