"""Later steps: a plan is not lower than real steps that differ from the second, or says so first."""

import functools
import itertools
import random
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

import surefoot
from surefoot.data.batches import batches_of
from surefoot.meters.books import Books
from surefoot.records.codec import to_json
from surefoot.records.plan import STEPS_DIFFER
from surefoot.reports.console import as_text
from surefoot.reports.plan import plan_text
from surefoot.step import Step
from surefoot.world.world import World

WIDTH = 32


def rows(samples: int = 8) -> tuple[torch.Tensor]:
    return (torch.randn(samples, WIDTH),)


def layers(count: int = 4) -> list[nn.Module]:
    return [nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.ReLU(), nn.Linear(8 * WIDTH, WIDTH)) for _ in range(count)]


def real_peaks(recipe: surefoot.Recipe, steps: int) -> list[int]:
    """The peaks of all real steps but the first."""
    world, batches = World(), batches_of(recipe)
    with Books() as books:
        step = Step(recipe, world)
        books.close()
        books.phases.find(step.model)
        for _ in range(steps):
            before = len(books.steps)
            step(books.seen(world.take(batches) for _ in range(recipe.micro_batches())))
            if len(books.steps) == before:
                books.end_step()
    return [usage.peak.peak_bytes for usage in books.steps[1:]]


def first_lines(plan: surefoot.Plan) -> str:
    return as_text(plan_text(plan)).partition("\n\n")[0].replace("\n", " ")


# ------------------------------------------------------------------------------------------- random numbers


class Skipping(nn.Module):
    """Layers that a whole batch skips by chance. `draw` is below 1 and skips if it is low."""

    def __init__(self, draw, skips: float = 0.9):
        super().__init__()
        self.layers, self.draw, self.skips = nn.ModuleList(layers()), draw, skips

    def forward(self, x):
        for layer in self.layers:
            if not self.draw() < self.skips:
                x = x + layer(x)
        return x.mean() + sum(each.sum() for each in self.parameters())


GENERATOR = np.random.default_rng(0)
DRAWS = {
    "python": lambda: random.random(),
    "uniform": lambda: random.uniform(0, 1),
    "choice": lambda: random.choice([0.0, 1.0]),
    "numpy": lambda: np.random.rand(),
    "numpy uniform": lambda: np.random.uniform(),
    "torch": lambda: torch.rand(()).item(),
    "torch, many": lambda: torch.rand(3).max(),
    "torch, in place": lambda: torch.empty(1).uniform_(),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_layers_that_are_left_out_by_chance_are_planned_as_if_none_were(draw):
    recipe = surefoot.recipe_of(lambda: Skipping(draw), rows(256))
    never = surefoot.recipe_of(lambda: Skipping(lambda: 2), rows(256))
    plan = surefoot.plan(recipe)
    assert plan.steady.peak.peak_bytes == pytest.approx(max(real_peaks(never, 3)), abs=64)
    assert "usually" in first_lines(plan)
    assert first_lines(plan).count(STEPS_DIFFER) == 1


def test_random_numbers_that_choose_nothing_are_not_mentioned():
    plan = surefoot.plan(surefoot.recipe_of(lambda: Skipping(lambda: random.random(), skips=-1), rows()))
    assert plan.steps_differ == ()


@pytest.mark.parametrize("draw", [lambda: random.gauss(0, 1), lambda: torch.randn(()).item(), GENERATOR.random])
def test_draws_that_a_plan_cannot_bring_to_their_ends_are_said_first(draw):
    plan = surefoot.plan(surefoot.recipe_of(lambda: Skipping(draw, skips=-100), rows()))
    assert "others are not validated" in first_lines(plan)


# ------------------------------------------------------------------------------------------- counts


class Periodic(torch.optim.SGD):
    """An optimizer that needs more memory when `now` says so of its count of steps."""

    def __init__(self, parameters, now):
        super().__init__(parameters, lr=0.01)
        self.now, self.count = now, 0

    @torch.no_grad()
    def step(self, closure=None):
        if self.now(self.count):
            torch.zeros(10**6).sum()
        self.count += 1
        return super().step(closure)


COUNTED = {
    "every fifth": lambda count: count % 5 == 4,
    "every 200th": lambda count: count % 200 == 199,
    "after the 1,000th": lambda count: (count + 1) % 1000 == 0,
    "all but": lambda count: not (count - 3) % 500,
    "from 300 on": lambda count: count >= 300,
    "above 300": lambda count: count > 300,
    "up to 4": lambda count: 3 <= count <= 4,
    "one step": lambda count: count == 77,
}


@pytest.mark.parametrize("now", COUNTED.values(), ids=COUNTED)
def test_work_of_an_optimizer_in_some_steps_is_planned(now):
    plan = surefoot.plan(surefoot.recipe_of(lambda: nn.Linear(WIDTH, 1), rows(), optimizer=lambda p: Periodic(p, now)))
    assert plan.steady.peak.peak_bytes > 4 * 10**6
    assert "decides by a count of its steps" in plan.steps_differ[0]


@pytest.mark.parametrize("now", [lambda count: count in {500, 900}, lambda count: 2 * count / 0.5 > 100])
def test_a_count_that_is_compared_in_another_way_is_said_first(now):
    plan = surefoot.plan(surefoot.recipe_of(lambda: nn.Linear(WIDTH, 1), rows(), optimizer=lambda p: Periodic(p, now)))
    assert "decides by a count of its steps" in first_lines(plan)


@pytest.mark.parametrize("kept", [int, torch.zeros], ids=["int", "tensor"])
def test_a_count_in_the_state_of_a_parameter(kept):
    class Counting(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure=None):
            for each in self.param_groups[0]["params"]:
                state = self.state[each]
                state.setdefault("step", torch.zeros(()) if kept is torch.zeros else 0)
                state["step"] += 1
                if state["step"] % 50 == 0:
                    torch.zeros(10**6).sum()

    plan = surefoot.plan(surefoot.recipe_of(lambda: nn.Linear(WIDTH, 1), rows(), optimizer=Counting))
    assert plan.steady.peak.peak_bytes > 4 * 10**6
    assert "decides by a count" in plan.steps_differ[0]


def test_a_count_of_a_step_of_ones_own_is_planned_and_given_back():
    calls = 0

    def step(model, optimizer, batch):
        nonlocal calls
        calls += 1
        if calls % 100 == 0:
            torch.zeros(10**6).sum()
        loss = model(batch[0]).mean()
        loss.backward()
        optimizer.step()
        return loss

    recipe = surefoot.recipe_of(
        lambda: nn.Linear(WIDTH, 1),
        rows(),
        step=step,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    )
    plan = surefoot.plan(recipe)
    assert calls == 0
    assert plan.steady.peak.peak_bytes > 4 * 10**6
    assert surefoot.plan(recipe) == plan


def test_counts_that_choose_nothing_are_not_mentioned():
    plan = surefoot.plan(
        surefoot.recipe_of(lambda: nn.Linear(WIDTH, 1), rows(), optimizer=lambda p: Periodic(p, lambda _: False))
    )
    assert plan.steps_differ == ()


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "NAdam", "Adafactor", "Rprop"])
def test_the_usual_optimizers_take_two_steps(optimizer, monkeypatch):
    taken = []
    monkeypatch.setattr(Step, "__call__", _counting(Step.__call__, taken))
    surefoot.plan(surefoot.recipe_of(lambda: nn.Linear(WIDTH, 1), rows(), optimizer=getattr(torch.optim, optimizer)))
    assert len(taken) == 2


def _counting(plain, taken):
    def call(*args):
        taken.append(1)
        return plain(*args)

    return call


def test_radam_takes_more_from_its_sixth_step_on():
    recipe = surefoot.recipe_of(
        lambda: nn.Linear(WIDTH, 256), rows(), optimizer=lambda p: torch.optim.RAdam(p, foreach=False)
    )
    plan = surefoot.plan(recipe)
    assert plan.steady.peak.peak_bytes >= max(real_peaks(recipe, 10)) - 64


# ------------------------------------------------------------------------------------------- what is kept


class Memory(nn.Module):
    """Keeps the hidden states of earlier steps, as many as `most`, as Transformer-XL does."""

    def __init__(self, most: int):
        super().__init__()
        self.layer, self.most, self.kept = nn.Linear(WIDTH, WIDTH), most, []

    def forward(self, x):
        hidden = torch.cat([*self.kept, self.layer(x)])
        self.kept = [*self.kept, hidden[-len(x) :].detach().clone()][-self.most :]
        return hidden.mean()


def test_a_memory_is_planned_when_it_is_full():
    recipe = surefoot.recipe_of(lambda: Memory(12), rows(64))
    plan = surefoot.plan(recipe)
    assert plan.steady.peak.peak_bytes == pytest.approx(max(real_peaks(recipe, 20)), abs=64)


def test_what_still_grows_is_said_first_with_what_it_comes_to():
    plan = surefoot.plan(surefoot.recipe_of(lambda: Memory(10**6), rows(64), max_steps=1000))
    said = first_lines(plan)
    assert "each keeps 8.00 KiB more" in said
    assert "by step 1,000" in said


def test_a_later_step_that_fails_leaves_a_plan_of_two():
    def now(count):
        if count == 5:
            raise RuntimeError("the fifth")
        return False

    plan = surefoot.plan(surefoot.recipe_of(lambda: nn.Linear(WIDTH, 1), rows(), optimizer=lambda p: Periodic(p, now)))
    assert "RuntimeError" in first_lines(plan)
    assert plan.steady.peak.peak_bytes


# ------------------------------------------------------------------------------------------- values of the batch


class Distinct(nn.Module):
    """Works on each distinct token once, so its memory depends on the values of a batch of one shape."""

    def __init__(self, read):
        super().__init__()
        self.embed, self.read = nn.Embedding(100, WIDTH), read

    def forward(self, tokens):
        rows = self.embed(self.read(tokens))
        return (rows @ rows.T).square().mean()


def packed(tokens):
    lengths = 1 + tokens.max(1).values.clamp(max=tokens.shape[1] - 1)
    return nn.utils.rnn.pack_padded_sequence(tokens, lengths, batch_first=True, enforce_sorted=False).data


READS = {
    "unique": lambda tokens: tokens.unique(),
    "mask": lambda tokens: tokens[tokens > 20],
    "nonzero": lambda tokens: tokens.flatten()[(tokens.flatten() > 20).nonzero()[:, 0]],
    "list": lambda tokens: torch.tensor(sorted(set(tokens.flatten().tolist()))),
    "numpy": lambda tokens: torch.from_numpy(np.unique(tokens.numpy())),
    "number": lambda tokens: tokens.flatten()[: int(tokens.max())],
    "packed": packed,
}


class Texts(torch.utils.data.Dataset):
    """Texts of one length. The more of them a run has seen, the richer they are."""

    draws_randomness = False

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.arange(16) % (1 + index % 16) + index


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_memory_that_depends_on_values_of_the_batch(read):
    recipe = texts(model=lambda: Distinct(read))
    plan = surefoot.plan(recipe)
    assert plan.steady.peak.peak_bytes >= max(real_peaks(recipe, 8)) - 64
    assert "reads values of the batch" in plan.steps_differ[0]
    assert "usually" in first_lines(plan)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_plan_of_one_batch_says_that_it_saw_one(read):
    torch.manual_seed(0)
    plan = surefoot.plan(surefoot.recipe_of(lambda: Distinct(read), (torch.randint(21, 100, (4, 16)),)))
    assert "one batch was planned" in first_lines(plan)


def test_a_branch_on_values_of_the_batch_is_said_first():
    def read(tokens):
        return tokens.flatten() if (tokens == 99).any() else tokens[:1].flatten()

    plan = surefoot.plan(surefoot.recipe_of(lambda: Distinct(read), (torch.randint(0, 90, (4, 16)),)))
    assert "one batch was planned" in first_lines(plan)


def test_a_batch_whose_values_are_not_read_is_not_mentioned():
    recipe = surefoot.recipe_of(lambda: Distinct(lambda tokens: tokens.flatten()), (torch.randint(0, 90, (4, 16)),))
    assert surefoot.plan(recipe).steps_differ == ()


# ------------------------------------------------------------------------------------------- other devices


class Growing(nn.Module):
    """Its weight is another, larger parameter from the second step on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.steps = nn.Parameter(torch.randn(8, WIDTH)), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        if self.steps == 2:
            self.weight = nn.Parameter(torch.randn(16, WIDTH))
        return (x @ self.weight.t()).square().mean()


def test_a_state_that_a_new_model_does_not_take_is_said_first():
    plan = surefoot.plan(
        surefoot.Recipe(
            model=Growing,
            data=rows,
            loss=lambda model, batch: model(batch[0]),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            micro_batch_size=8,
            max_steps=4,
        )
    )
    assert plan.resume.peak.peak_bytes == 0
    assert "a resume is not planned: a new model does not take the state of this one: size mis" in first_lines(plan)


def test_a_tensor_on_meta_takes_no_memory():
    class Outlined(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(WIDTH, 1)

        def forward(self, x):
            outline = torch.empty(10**6, device="meta") * 2
            assert outline.shape == (10**6,)
            return self.layer(x)

    recipe = surefoot.recipe_of(Outlined, rows())
    plan = surefoot.plan(recipe)
    assert plan.steady.peak.peak_bytes == real_peaks(recipe, 3)[-1] < 10**6


# ------------------------------------------------------------------------------------------- the same plan


def texts(**settings) -> surefoot.Recipe:
    return surefoot.Recipe(
        loss=lambda model, batch: model(batch),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        **{
            "model": lambda: Distinct(READS["unique"]),
            "data": Texts,
            "micro_batch_size": 4,
            "max_steps": 100,
            **settings,
        },
    )


class Lines(torch.utils.data.IterableDataset):
    def __iter__(self):
        return (torch.arange(number * 7 % 50 + 1) for number in itertools.count())


RECIPES = {
    "dropped layers": lambda: surefoot.recipe_of(lambda: Skipping(DRAWS["python"]), rows()),
    "draws of torch": lambda: surefoot.recipe_of(lambda: Skipping(DRAWS["torch"]), rows()),
    "periodic": lambda: surefoot.recipe_of(
        lambda: nn.Linear(WIDTH, 1), rows(), optimizer=lambda p: Periodic(p, COUNTED["every 200th"])
    ),
    "memory": lambda: surefoot.recipe_of(lambda: Memory(5), rows()),
    "values": texts,
    "padded": lambda: texts(data=lambda: Lines(), collate=lambda lines: nn.utils.rnn.pad_sequence(lines)),
}


def fast(clock, began):
    return began + 50 * (clock() - began)


@pytest.mark.sweep
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_plan_is_the_same_again_and_on_a_slow_machine(recipe, monkeypatch):
    torch.manual_seed(0)
    cold = to_json(surefoot.plan(recipe()))
    assert to_json(surefoot.plan(recipe())) == cold
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for name in ("monotonic", "perf_counter", "process_time", "time"):
            plain = getattr(time, name)
            monkeypatch.setattr(time, name, functools.partial(fast, plain, plain()))
        assert to_json(surefoot.plan(recipe())) == cold
    finally:
        busy.kill()
        busy.wait()
