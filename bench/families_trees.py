"""Recursive networks on Python objects: trees of words, programmes of modules, parsers that push and pop."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch
import torch.nn.functional as F
from families import Samples, family
from torch import nn

from surefoot import Recipe, recipe_of

tree = family("trees", steps=6)
WORDS, WIDTH = 300, 64
Tree = Any
"""A word, or two subtrees."""


def grown(numbers: random.Random, leaves: int | None = None) -> Tree:
    leaves = numbers.randint(4, 24) if leaves is None else leaves
    if leaves == 1:
        return numbers.randrange(WORDS)
    left = numbers.randint(1, leaves - 1)
    return grown(numbers, left), grown(numbers, leaves - left)


def words_of(node: Tree) -> list[int]:
    return [node] if isinstance(node, int) else words_of(node[0]) + words_of(node[1])


def labelled(numbers: random.Random) -> tuple[Tree, int]:
    return grown(numbers), numbers.randrange(5)


def judged(model: nn.Module, batch: Any) -> torch.Tensor:
    scores = torch.stack([model(node) for node, _ in batch])
    return F.cross_entropy(scores, torch.tensor([label for _, label in batch]))


def on_trees(model: Any, loss: Any = judged, sample: Any = labelled, size: int = 16) -> Recipe:
    return Recipe(
        model=model,
        data=lambda: Samples(500, sample),
        collate=list,
        loss=loss,
        optimizer=lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
        micro_batch_size=size,
        max_steps=100,
    )


@tree
def tree_lstm() -> Recipe:
    class TreeLstm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 5)
            self.inputs, self.sums = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
            self.forget = nn.Linear(WIDTH, WIDTH)

        def node(self, node: Tree) -> tuple[torch.Tensor, torch.Tensor]:
            if isinstance(node, int):
                gates, kept = self.inputs(self.embed(torch.tensor(node))), torch.zeros(WIDTH)
            else:
                children = [self.node(each) for each in node]
                gates = self.sums(sum(h for h, _ in children))
                kept = sum(torch.sigmoid(self.forget(h)) * c for h, c in children)
            i, o, u = gates.chunk(3)
            c = torch.sigmoid(i) * torch.tanh(u) + kept
            return torch.sigmoid(o) * torch.tanh(c), c

        def forward(self, root: Tree) -> torch.Tensor:
            return self.head(self.node(root)[0])

    return on_trees(TreeLstm)


@tree
def tensor_network() -> Recipe:
    """Socher's recursive neural tensor network, with a loss at every node."""

    class Recursive(nn.Module):
        def __init__(self, width: int = 24) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(WORDS, width), nn.Linear(width, 5)
            self.pairs = nn.Bilinear(2 * width, 2 * width, width)
            self.line = nn.Linear(2 * width, width)

        def node(self, node: Tree, found: list[torch.Tensor]) -> torch.Tensor:
            if isinstance(node, int):
                here = torch.tanh(self.embed.weight[node])
            else:
                both = torch.cat([self.node(each, found) for each in node])
                here = torch.tanh(self.pairs(both, both) + self.line(both))
            found.append(self.head(here))
            return here

        def forward(self, root: Tree) -> torch.Tensor:
            found: list[torch.Tensor] = []
            self.node(root, found)
            return torch.stack(found)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        scores = [model(node) for node, _ in batch]
        return torch.stack(
            [F.cross_entropy(each, torch.full((len(each),), y)) for each, (_, y) in zip(scores, batch, strict=True)]
        ).mean()

    return on_trees(Recursive, loss, size=8)


@tree
def shift_reduce() -> Recipe:
    """SPINN: stacks of tensors, batched by what each sentence does next."""

    def moves(node: Tree) -> list[int]:
        return [0] if isinstance(node, int) else [*moves(node[0]), *moves(node[1]), 1]

    class Spinn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.reduce = nn.Embedding(WORDS, 2 * WIDTH), nn.Linear(2 * WIDTH, 5 * WIDTH)
            self.head = nn.Linear(WIDTH, 5)

        def forward(self, trees: list[Tree]) -> torch.Tensor:
            buffers = [list(self.embed(torch.tensor(words_of(each))).unbind(0)) for each in trees]
            todo, stacks = [moves(each) for each in trees], [[] for _ in trees]
            for time in range(max(map(len, todo))):
                pairs, into = [], []
                for stack, buffer, steps in zip(stacks, buffers, todo, strict=True):
                    if time >= len(steps):
                        continue
                    if steps[time] == 0:
                        stack.append(buffer.pop(0))
                    else:
                        right, left = stack.pop(), stack.pop()
                        pairs.append((left, right))
                        into.append(stack)
                if pairs:
                    (lh, lc), (rh, rc) = (torch.stack(each).chunk(2, 1) for each in zip(*pairs, strict=True))
                    i, f, g, o, u = self.reduce(torch.cat([lh, rh], 1)).chunk(5, 1)
                    c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f) * lc + torch.sigmoid(g) * rc
                    made = torch.cat([torch.sigmoid(o) * torch.tanh(c), c], 1)
                    for stack, each in zip(into, made.unbind(0), strict=True):
                        stack.append(each)
            return self.head(torch.stack([stack[0] for stack in stacks])[:, :WIDTH])

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model([node for node, _ in batch]), torch.tensor([label for _, label in batch]))

    return on_trees(Spinn, loss, size=32)


@tree
def by_levels() -> Recipe:
    """Nodes of a forest level by level, with index tensors, as graph libraries batch trees."""

    def levels(batch: Any) -> dict[str, Any]:
        words: list[int] = []
        edges: list[list[tuple[int, int, int]]] = []
        count = sum(len(words_of(node)) for node, _ in batch)
        roots = []

        def visit(node: Tree) -> tuple[int, int]:
            nonlocal count
            if isinstance(node, int):
                words.append(node)
                return len(words) - 1, 0
            (left, one), (right, two) = visit(node[0]), visit(node[1])
            level, here = max(one, two), count
            count += 1
            while len(edges) <= level:
                edges.append([])
            edges[level].append((here, left, right))
            return here, level + 1

        roots = [visit(node)[0] for node, _ in batch]
        tensors = [torch.tensor(each) for each in edges]
        return {"words": torch.tensor(words), "levels": tensors, "roots": torch.tensor(roots), "count": count,
                "labels": torch.tensor([label for _, label in batch])}  # fmt: skip

    class Levels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.join, self.head = (
                nn.Embedding(WORDS, WIDTH), nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, 5)
            )  # fmt: skip

        def forward(self, batch: Any) -> torch.Tensor:
            state = torch.zeros(batch["count"], WIDTH)
            state = state.index_copy(0, torch.arange(len(batch["words"])), self.embed(batch["words"]))
            for level in batch["levels"]:
                here, left, right = level.unbind(1)
                state = state.index_copy(0, here, torch.tanh(self.join(torch.cat([state[left], state[right]], 1))))
            return self.head(state[batch["roots"]])

    recipe = on_trees(Levels, lambda model, batch: F.cross_entropy(model(batch), batch["labels"]), size=32)
    return Recipe(**{**{f: getattr(recipe, f) for f in ("model", "data", "loss", "optimizer", "max_steps")},
                     "collate": levels, "micro_batch_size": 32})  # fmt: skip


@tree
def greedy_autoencoder() -> Recipe:
    """A recursive autoencoder that joins the pair it can rebuild best, until one is left."""

    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(WORDS, WIDTH)
            self.into, self.back = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            nodes, total = list(self.embed(words).unbind(0)), torch.zeros(())
            while len(nodes) > 1:
                pairs = torch.stack([torch.cat(pair) for pair in itertools.pairwise(nodes)])
                joined = torch.tanh(self.into(pairs))
                errors = (self.back(joined) - pairs).square().mean(1)
                best = int(errors.argmin())
                total = total + errors[best]
                nodes[best : best + 2] = [joined[best]]
            return total

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return torch.stack([model(each) for each in batch]).mean()

    return on_trees(Greedy, loss, lambda numbers: torch.tensor(words_of(grown(numbers))), size=4)


@tree
def module_programmes() -> Recipe:
    """Neural module networks: a question is a programme, and each word of it a network."""

    names = ("find", "relate", "both", "count")

    def programme(numbers: random.Random, depth: int = 0) -> Any:
        name = numbers.choice(names) if depth < 4 else "find"
        return (name, *(programme(numbers, depth + 1) for _ in range({"find": 0, "both": 2}.get(name, 1))))

    def sample(numbers: random.Random) -> Any:
        return torch.randn(32, 14, 14), programme(numbers), numbers.randrange(10)

    class Modules(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(32, 32, 3, padding=1), nn.Linear(32 * 49, 10)
            self.parts = nn.ModuleDict(
                {name: nn.Conv2d(96 if name == "both" else 64, 32, 3, padding=1) for name in names}
            )
            self.blank = nn.Parameter(torch.ones(1, 32, 14, 14))

        def run(self, node: Any, image: torch.Tensor) -> torch.Tensor:
            given = [self.run(each, image) for each in node[1:]] or [self.blank]
            return F.relu(self.parts[node[0]](torch.cat([image, *given], 1)))

        def forward(self, image: torch.Tensor, node: Any) -> torch.Tensor:
            return self.head(F.max_pool2d(self.run(node, F.relu(self.stem(image[None]))), 2).flatten(1))[0]

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        scores = torch.stack([model(image, node) for image, node, _ in batch])
        return F.cross_entropy(scores, torch.tensor([y for _, _, y in batch]))

    return on_trees(Modules, loss, sample, size=16)


@tree
def soft_decisions() -> Recipe:
    """A tree of gates that grows one level per call of itself, each leaf with a network of its own."""

    class Gate(nn.Module):
        def __init__(self, depth: int) -> None:
            super().__init__()
            self.gate = nn.Linear(128, 1)
            make = (lambda: Gate(depth - 1)) if depth else (lambda: nn.Linear(128, 10))
            self.left, self.right = make(), make()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            share = torch.sigmoid(self.gate(x))
            return share * self.left(x) + (1 - share) * self.right(x)

    return recipe_of(lambda: Gate(4), (torch.randn(512, 128),))
