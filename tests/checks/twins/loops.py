"""Twins of the checks on gradients, updates and schedules."""

import copy
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.twins import Module, X, Y, mlp, numbers, plain, sgd, twin, whole

DATA = TensorDataset(numbers(40, 4), whole(2, 40))


def loader(**options):
    return DataLoader(DATA, **{"batch_size": 8, **options})


@twin("missing-zero-grad")
def _(buggy):
    return plain(mlp(), zero=not buggy)


@twin("detached-loss")
def _(buggy):
    def rebuilt(h, y):
        loss = F.cross_entropy(h, y)
        return torch.tensor(loss.item(), requires_grad=True) if buggy else loss

    return plain(mlp(), loss=rebuilt)


@twin("eval-mode-in-training")
def _(buggy):
    model = mlp(nn.Dropout(0.5))
    model.train(not buggy)
    return plain(model)


@twin("parameter-outside-optimizer")
def _(buggy):
    model = mlp()
    return plain(model, optimizer=sgd(model[2] if buggy else model))


@twin("detached-layers")
def _(buggy):
    model = Module(lambda self, x: self.end(self.body(x).relu().detach() if buggy else self.body(x).relu()),
                   body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))  # fmt: skip
    return plain(model)


@twin("overwritten-saved-tensor")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            if buggy:
                model[2].weight.data.mul_(0.9)
            loss.backward()
            optimizer.step()
    return seen.findings


@twin("update-without-gradients")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            if buggy:
                optimizer.zero_grad()
            optimizer.step()
    return seen.findings


@twin("missing-update")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            if not buggy:
                optimizer.step()
    return seen.findings


@twin("kept-losses")
def _(buggy):
    model, kept = mlp(), []
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(8):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            loss.backward()
            optimizer.step()
            kept.append(loss if buggy else loss.item())
    return seen.findings


@twin("graph-built-in-evaluation")
def _(buggy):
    model = mlp(nn.Dropout(0.1))
    totals = []

    def evaluate(step):
        model.eval()
        with torch.set_grad_enabled(buggy):
            totals.append(sum(F.cross_entropy(model(X + n), Y) for n in range(2)))
        model.train()

    return plain(model, steps=6, after=evaluate)


@twin("growing-graph")
def _(buggy):
    model = nn.Linear(4, 8)
    optimizer, state = sgd(model), torch.zeros(8, 8)
    with surefoot.watch(model, optimizer) as seen:
        for step in range(6):
            optimizer.zero_grad()
            state = 0.5 * (state if buggy else state.detach()) + model(X + step)
            state.pow(2).mean().backward(retain_graph=buggy)
            optimizer.step()
    return seen.findings


@twin("repeated-backward")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            loss.backward(retain_graph=buggy)
            if buggy:
                loss.backward()
            optimizer.step()
    return seen.findings


@twin("gradients-into-fixed-network")
def _(buggy):
    online, target = mlp(), mlp()
    optimizer = sgd(online)
    with surefoot.watch(online, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            with torch.set_grad_enabled(buggy):
                wanted = 0.9 * target(X).amax(1)
            F.mse_loss(online(X).amax(1), 1.0 + wanted).backward()
            optimizer.step()
    return seen.findings


@twin("recomputation-differs")
def _(buggy):
    rng = np.random.default_rng(0)

    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x * float(rng.uniform(0.5, 1.5)) if buggy else x)

    model = Module(lambda self, x: self.end(checkpoint(self.body, x, use_reentrant=False)),
                   body=lambda: nn.Sequential(Noisy(4, 8), nn.ReLU()), end=lambda: nn.Linear(8, 2))  # fmt: skip
    return plain(model)


@twin("optimizer-of-other-parameters")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    model = copy.deepcopy(model) if buggy else model
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
    return seen.findings


@twin("only-frozen-parameters-in-optimizer")
def _(buggy):
    model = mlp()
    if buggy:
        model[2].requires_grad_(False)
        return plain(model, optimizer=sgd(model[2]))
    with surefoot.watch(model) as seen:
        for trained, frozen in ((model[2], model[0]), (model[0], model[2])):
            frozen.requires_grad_(False)
            optimizer = sgd(trained.requires_grad_())
            for _ in range(4):
                optimizer.zero_grad()
                F.cross_entropy(model(X), Y).backward()
                optimizer.step()
    return seen.findings


@twin("scheduler-at-wrong-rate")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    scheduler = CosineAnnealingLR(optimizer, T_max=3 if buggy else 15)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for x, y in loader(shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                scheduler.step()
    return seen.findings


@twin("scheduler-out-of-order")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    scheduler = CosineAnnealingLR(optimizer, T_max=100)
    with surefoot.watch(model, optimizer) as seen, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            if buggy:
                scheduler.step()
            optimizer.step()
            if not buggy:
                scheduler.step()
    return seen.findings


@twin("zero-learning-rate")
def _(buggy):
    model = mlp()
    return plain(model, optimizer=sgd(model, lr=0.0 if buggy else 0.1))


@twin("update-without-effect")
def _(buggy):
    model = mlp()
    return plain(model, optimizer=sgd(model, lr=1e-14 if buggy else 0.1))


@twin("clipping-without-effect")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            if not buggy:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if buggy:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return seen.findings


def scaled(*, unscale=True, dtype=None, factor=1.0, scaler=True, wrap=False):
    model = mlp()
    optimizer = sgd(model)
    scaling = torch.amp.GradScaler("cpu", enabled=scaler)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(8):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
                loss = F.cross_entropy(model(X), Y) * factor
            scaling.scale(loss).backward()
            if unscale:
                scaling.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            elif unscale is False:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaling.step(optimizer)
            scaling.update()
    return seen.findings


@twin("clipping-scaled-gradients")
def _(buggy):
    return scaled(unscale=not buggy)


@twin("scaler-with-bfloat16")
def _(buggy):
    return scaled(dtype=torch.bfloat16, scaler=buggy)


@twin("scaler-skips-updates")
def _(buggy):
    return scaled(factor=1e38 if buggy else 1.0, unscale=None)


@twin("float16-without-scaler")
def _(buggy):
    return scaled(dtype=torch.float16, scaler=not buggy, unscale=None)


@twin("update-inside-autocast")
def _(buggy):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen, torch.autocast("cpu", torch.bfloat16, enabled=buggy):
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(X), Y)
            loss.backward()
            optimizer.step()
    return seen.findings


@twin("updates-rounded-away")
def _(buggy):
    model = mlp().bfloat16()
    return plain(model, x=X.bfloat16(), optimizer=sgd(model, lr=1e-6 if buggy else 0.5))


@twin("low-precision-positions")
def _(buggy):
    def forward(self, x):
        places = torch.arange(400, dtype=torch.bfloat16 if buggy else torch.float32)
        return self.end(x + places.float().mean() * 0.01)

    return plain(Module(forward, end=lambda: nn.Linear(4, 2)))


@twin("low-precision-running-sum")
def _(buggy):
    total = torch.zeros((), dtype=torch.bfloat16 if buggy else torch.float32)

    def add(_):
        total.add_(0.5)

    return plain(mlp(), after=add)


@twin("overflowing-mask-value")
def _(buggy):
    def forward(self, x):
        mask = torch.zeros(4).half()
        scores = self.score(x).half() + (mask * (-1e9 if buggy else -1e4))
        return self.end(torch.nan_to_num(scores.float()).softmax(-1) * x)

    return plain(Module(forward, score=lambda: nn.Linear(4, 4), end=lambda: nn.Linear(4, 2)))


@twin("nonfinite-gradients")
def _(buggy):
    return plain(mlp(), loss=lambda h, y: F.cross_entropy(h, y) * (float("inf") if buggy else 1.0))


def accumulated(divide, *, inside=False, targets=None):
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            for number in range(4):
                if inside:
                    optimizer.zero_grad()
                y = Y if targets is None else targets[number]
                (F.cross_entropy(model(X + number), y) / divide).backward()
            optimizer.step()
    return seen.findings


@twin("summed-micro-batches")
def _(buggy):
    return accumulated(1 if buggy else 4)


@twin("mean-of-unequal-means")
def _(buggy):
    ragged = [torch.where(torch.arange(8) < n, Y, -100) for n in ((8, 2, 8, 1) if buggy else (6, 6, 6, 6))]
    return accumulated(4, targets=ragged)


@twin("zero-grad-between-micro-batches")
def _(buggy):
    return accumulated(4, inside=buggy)


@twin("leftover-micro-batches")
def _(buggy):
    model = mlp()
    optimizer, batches = sgd(model), loader(shuffle=True)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(2):
            for number, (x, y) in enumerate(batches):
                (F.cross_entropy(model(x), y) / 2).backward()
                if number % 2 or (not buggy and number + 1 == len(batches)):
                    optimizer.step()
                    optimizer.zero_grad()
    return seen.findings


@twin("parameter-in-two-optimizers")
def _(buggy):
    model = mlp()
    first, second = sgd(model if buggy else model[0]), sgd(model if buggy else model[2])
    with surefoot.watch(model, first, second) as seen:
        for _ in range(3):
            model.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            first.step()
            second.step()
    return seen.findings


@twin("training-mode-in-evaluation")
def _(buggy):
    model = mlp(nn.Dropout(0.5))

    def evaluate(_):
        model.train(buggy)
        with torch.no_grad():
            for number in range(3):
                model(X + number).argmax(1)
        model.train()

    return plain(model, after=evaluate)


@twin("reseeded-steps")
def _(buggy):
    model = mlp(nn.Dropout(0.5))
    return plain(model, after=lambda _: torch.manual_seed(0) if buggy else None)


@twin("anomaly-mode-in-training")
def _(buggy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(buggy):
            return plain(mlp())
