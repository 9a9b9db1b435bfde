"""Other loops than the twins have: gradients by functions and by hand, parts of an update, what steps keep."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from surefoot.watch import watch_script
from tests.checks.test_variants import named
from tests.checks.twins import X, Y, mlp, numbers, sgd, whole

pytestmark = pytest.mark.sweep


def looped(body, *, steps=6, model=None, optimizer=None):
    """What is found in a loop whose steps are `body(model, optimizer)`."""
    model = model or mlp()
    optimizer = optimizer or sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(steps):
            body(model, optimizer)
    return named(seen.findings)


def clipped(*, when, parameters=lambda model: model.parameters()):
    def step(model, optimizer):
        optimizer.zero_grad()
        for x, y in ((X[:4], Y[:4]), (X[4:], Y[4:])):
            if when == "before":
                nn.utils.clip_grad_norm_(parameters(model), 1.0)
            (F.cross_entropy(model(x), y) / 2).backward()
        if when == "after":
            nn.utils.clip_grad_norm_(parameters(model), 1.0)
        optimizer.step()

    return looped(step)


def test_clipping_must_come_after_the_last_backward_and_reach_most_of_an_update():
    assert clipped(when="after") == []
    assert clipped(when="before") == ["clipping-without-effect"]
    assert clipped(when="after", parameters=lambda model: [model[2].bias]) == ["clipping-without-effect"]
    assert clipped(when="after", parameters=lambda model: model[0].parameters()) == []


@pytest.mark.parametrize("function", [F.cross_entropy, lambda x, y: F.cross_entropy(x, y, reduction="none").mean()])
def test_means_of_micro_batches_are_known_however_they_are_taken(function):
    def step(parts, divided_by):
        def body(model, optimizer):
            optimizer.zero_grad()
            for x, y in parts:
                (function(model(x), y) / divided_by).backward()
            optimizer.step()

        return body

    even = [(X[:4], Y[:4]), (X[4:], Y[4:])]
    assert looped(step(even, 1)) == ["summed-micro-batches"]
    assert looped(step(even, 2)) == []


@pytest.mark.parametrize("cut_by_hand", [True, False])
def test_parts_of_unequal_size_are_more_than_a_last_batch(cut_by_hand):
    loader = DataLoader(TensorDataset(numbers(60, 4), whole(2, 60)), 8, shuffle=True)
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for number, (x, y) in enumerate(loader):
                part = slice(2) if cut_by_hand and number % 2 else slice(None)
                (F.cross_entropy(model(x[part]), y[part]) / 2).backward()
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()
    assert named(seen.findings) == (["mean-of-unequal-means"] if cut_by_hand else [])


@pytest.mark.parametrize("right", [True, False])
def test_a_mean_over_a_mask_counts_what_the_mask_holds(right):
    masks = [torch.tensor([1.0, 1, 1, 1, 1, 1, 0, 0]), torch.tensor([1.0, 1, 1, 0, 0, 0, 0, 0])]
    total = sum(mask.sum() for mask in masks)

    def body(model, optimizer):
        optimizer.zero_grad()
        for mask in masks:
            summed = (F.cross_entropy(model(X), Y, reduction="none") * mask).sum()
            (summed / total if right else summed / mask.sum() / len(masks)).backward()
        optimizer.step()

    assert looped(body) == ([] if right else ["mean-of-unequal-means"])


@pytest.mark.parametrize("kept", [True, False])
def test_an_evaluation_that_keeps_its_graphs_is_told_from_one_that_builds_them(kept):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model.train()(X), Y).backward()
            optimizer.step()
        model.eval()
        total = 0.0
        for part in X.split(1):
            loss = F.mse_loss(model(part), torch.zeros(1, 2))
            total = total + (loss if kept else loss.item())
    (finding,) = seen.findings.findings
    assert (finding.check, finding.severity) == ("graph-built-in-evaluation", "warning" if kept else "info")


@pytest.mark.parametrize("adapted", [True, False])
def test_copies_that_are_adapted_to_a_task_of_the_evaluation_need_their_graphs(adapted):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(12):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            if step % 6 == 5:
                copy = {name: each.detach().requires_grad_() for name, each in model.named_parameters()}
                for _ in range(5):
                    loss = F.cross_entropy(torch.func.functional_call(model, copy, (X,)), Y)
                    if adapted:
                        slopes = torch.autograd.grad(loss, list(copy.values()))
                        copy = {
                            name: each - 0.1 * slope for (name, each), slope in zip(copy.items(), slopes, strict=True)
                        }
    assert named(seen.findings) == ([] if adapted else ["graph-built-in-evaluation"])


@pytest.mark.parametrize("cut", [True, False])
def test_a_graph_that_grows_from_epoch_to_epoch_anew_is_named(cut):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(4))], lr=0.1)
    scale = optimizer.param_groups[0]["params"][0]
    with surefoot.watch(model.requires_grad_(False), optimizer) as seen:
        for step in range(16):
            state = torch.zeros(4) if step % 8 == 0 else state.detach() if cut else state  # noqa: F821
            state = torch.tanh(model(X[: 1 + step % 3]).mean(0) + state + scale.sigmoid().clone())
            optimizer.zero_grad()
            state.square().mean().backward(retain_graph=not cut)
            optimizer.step()
    assert ("growing-graph" in named(seen.findings)) is not cut


@pytest.mark.parametrize("given", [True, False])
def test_a_schedule_of_an_optimizer_that_another_one_replaces_is_named(given):
    model = mlp()
    first = sgd(model)
    with surefoot.watch(model) as seen:
        schedule = torch.optim.lr_scheduler.StepLR(first, 2)
        optimizer = first if given else sgd(model)
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            if given:
                schedule.step()
    assert named(seen.findings) == ([] if given else ["scheduler-out-of-order"])


def by_function(loss, *, hand_on=True, of_samples=False):
    """A loop whose gradients `torch.func` gives."""

    def body(model, optimizer):
        values = {name: each.detach() for name, each in model.named_parameters()}

        def mean(values, x, y):
            return loss(torch.func.functional_call(model, values, (x,)), y)

        def single(values, x, y):
            return mean(values, x[None], y[None])

        if of_samples:
            grads = torch.func.vmap(torch.func.grad(single), in_dims=(None, 0, 0))(values, X, Y)
            grads = {name: each.mean(0) for name, each in grads.items()}
        else:
            grads, _ = torch.func.grad_and_value(mean)(values, X, Y)
        for name, each in model.named_parameters():
            each.grad = grads[name] if hand_on else None
        optimizer.step()

    return looped(body)


@pytest.mark.parametrize("of_samples", [True, False])
def test_losses_inside_transforms_are_seen_from_outside(of_samples):
    assert by_function(F.cross_entropy, of_samples=of_samples) == []
    assert by_function(lambda x, y: F.cross_entropy(x.softmax(-1), y), of_samples=of_samples) == [
        "softmax-before-cross-entropy"
    ]
    assert by_function(F.cross_entropy, of_samples=of_samples, hand_on=False) == ["update-without-gradients"]


def test_a_function_is_called_once_more_without_a_trace():
    def loss(values, buffers, model):
        return F.cross_entropy(torch.func.functional_call(model, (values, buffers), (X,)), Y)

    def numbers_of(watched):
        torch.manual_seed(0)
        model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
        values = dict(model.named_parameters())
        with surefoot.watch(model) if watched else torch.enable_grad():
            for _ in range(3):
                grads = torch.func.grad(loss)(values, dict(model.named_buffers()), model)
                with torch.no_grad():
                    for name, each in model.named_parameters():
                        each -= 0.1 * grads[name]
        return [*model.parameters(), *model.buffers(), torch.rand(1)]

    assert all(map(torch.equal, numbers_of(True), numbers_of(False)))


@pytest.mark.parametrize("cut", [True, False])
def test_gradients_asked_of_autograd_and_handed_on_by_hand(cut):
    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.below, self.above = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            below = self.below(x).relu()
            return self.above(below.detach() if cut else below)

    def body(model, optimizer):
        loss = F.cross_entropy(model(X), Y)
        parameters = list(model.parameters())
        for each, grad in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
            each.grad = grad
        optimizer.step()

    assert looped(body, model=Cut()) == (["detached-layers"] if cut else [])


def test_updates_are_counted_to_the_end_of_a_long_script(tmp_path):
    """A schedule is judged by all of a run, although only its beginning is looked at."""
    script = tmp_path / "long.py"
    script.write_text(
        "import torch\n"
        "layer = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)\n"
        "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
        "for step in range(240):\n"
        "    optimizer.zero_grad()\n"
        "    (layer(torch.randn(4, 2)) - 1).square().mean().backward()\n"
        "    optimizer.step()\n"
        "    if step % 120 == 119:\n"
        "        schedule.step()\n",
        encoding="utf-8",
    )
    assert named(watch_script(str(script)).findings) == []


@pytest.mark.parametrize(("left", "found"), [("leaks", True), ("cleared", True), ("used", False)])
def test_what_is_left_of_a_pass_is_found_without_a_loader(left, found):
    def body(model, optimizer):
        for number, rows in enumerate(torch.arange(8).repeat(9, 1)):
            (F.cross_entropy(model(X[rows]), Y[rows]) / 2).backward()
            if number % 2 or (left == "used" and number == 8):
                optimizer.step()
                optimizer.zero_grad()
        if left == "cleared":
            optimizer.zero_grad()

    assert ("leftover-micro-batches" in looped(body, steps=3)) is found


@pytest.mark.parametrize("forked", [True, False])
def test_noise_drawn_in_a_fork_of_the_random_state_is_the_same_in_every_step(forked):
    def body(model, optimizer):
        with torch.random.fork_rng(enabled=forked):
            x = X + 0.1 * torch.randn_like(X)
        optimizer.zero_grad()
        F.cross_entropy(model(x), Y).backward()
        optimizer.step()

    assert looped(body) == (["reseeded-steps"] if forked else [])


@pytest.mark.parametrize("given", [True, False])
def test_an_optimizer_of_a_module_whose_values_are_given_as_a_dict(given):
    model = mlp()
    values = {name: each.detach().clone().requires_grad_() for name, each in model.named_parameters()}
    optimizer = torch.optim.SGD(values.values() if given else model.parameters(), lr=0.1)

    def body(model, optimizer):
        for each in values.values():
            each.grad = None
        F.cross_entropy(torch.func.functional_call(model, values, (X,)), Y).backward()
        optimizer.step()

    found = looped(body, model=model, optimizer=optimizer)
    assert ("optimizer-of-other-parameters" in found) is not given


@pytest.mark.parametrize(("most", "found"), [(40, True), (4, False)])
def test_a_warm_up_that_the_run_never_leaves(most, found):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / most))
        for _ in range(9):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            schedule.step()
    assert named(seen.findings) == (["zero-learning-rate"] if found else [])


@pytest.mark.parametrize("interval", [1, 2000])
def test_a_scale_that_grows_with_every_update_leaves_updates_out(interval):
    model = mlp()
    optimizer = sgd(model, lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=interval)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(24):
            optimizer.zero_grad()
            scaler.scale(100 * F.cross_entropy(model(X), Y)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert named(seen.findings) == (["scaler-skips-updates"] if interval == 1 else [])


def test_a_profiler_that_is_never_closed_is_mentioned():
    def body(model, optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()

    with torch.profiler.profile():
        assert looped(body, steps=14) == ["anomaly-mode-in-training"]
    assert looped(body, steps=14) == []
