"""Looking leaves no trace: not in what is computed, and not in torch."""

import gc
import random
import weakref

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer, lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

import surefoot
from tests.checks.programs import X, Y, mlp, numbers, sgd, whole
from tests.checks.texts import TEXT, Tokens, per_token


def alike(first, second) -> bool:
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, np.ndarray):
        return bool((first == second).all())
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(alike(a, b) for a, b in zip(first, second, strict=True))
    return first == second


def draws() -> list:
    return [torch.get_rng_state().clone(), random.getstate(), np.random.get_state()[1].copy()]


def state_of(model: nn.Module) -> list:
    tensors = [*model.parameters(), *model.buffers()]
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return [[each.clone() for each in tensors], gradients, [each.training for each in model.modules()]]


def trained(model, x, y, loss):
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        before = state_of(model), draws()
        findings = seen.findings
        assert alike(before, (state_of(model), draws()))
    return findings


def test_probes_leave_weights_buffers_gradients_modes_and_random_numbers_as_they_were():
    model = mlp(nn.BatchNorm1d(8), nn.Dropout(0.5))
    assert trained(model, X, Y, F.cross_entropy).findings == ()
    assert trained(Tokens(), TEXT[:, :-1], TEXT[:, 1:], per_token).findings == ()


def test_a_data_set_is_read_from_a_copy():
    class Counting(TensorDataset):
        reads = 0

        def __getitem__(self, index):
            self.reads += 1
            return super().__getitem__(index)

    data = Counting(numbers(40, 4), whole(2, 40))
    model = mlp()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for x, y in DataLoader(data, 8):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        reads = data.reads
        assert seen.findings.findings == ()
    assert data.reads == reads


FOLLOWED = (
    (Optimizer, "zero_grad"), (Optimizer, "__init__"), (Optimizer, "load_state_dict"), (nn.Module, "zero_grad"),
    (nn.Module, "state_dict"), (nn.Module, "load_state_dict"), (nn.utils, "clip_grad_norm_"), (torch, "save"),
    (nn.utils, "clip_grad_value_"), (torch, "load"), (torch.amp.GradScaler, "step"), (torch.autocast, "__exit__"),
    (DataLoader, "__iter__"), (lr_scheduler.LRScheduler, "step"), (lr_scheduler.LambdaLR, "load_state_dict"),
    (torch.autograd, "backward"), (torch.distributed, "all_reduce"),
)  # fmt: skip


def test_torch_is_put_back():
    before = [vars(owner)[name] for owner, name in FOLLOWED]
    with surefoot.watch():
        inside = [vars(owner)[name] for owner, name in FOLLOWED]
    assert all(a is not b for a, b in zip(before, inside, strict=True))
    assert [vars(owner)[name] for owner, name in FOLLOWED] == before


def test_a_watched_loop_computes_the_same_bits():
    def losses(watched: bool) -> list[str]:
        model = mlp(nn.BatchNorm1d(8), nn.Dropout(0.3))
        optimizer = torch.optim.AdamW(model.parameters())
        computed = []

        def loop():
            for x, y in DataLoader(TensorDataset(numbers(48, 4), whole(2, 48)), 8, shuffle=True):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                computed.append(loss.item().hex())

        if watched:
            with surefoot.watch(model, optimizer) as seen:
                loop()
                _ = seen.findings
                loop()
        else:
            loop()
            loop()
        return computed

    assert losses(True) == losses(False)


def test_inputs_that_a_penalty_is_derived_by_are_kept_by_nobody():
    torch.manual_seed(0)
    critic = mlp(classes=1)
    optimizer = sgd(critic)
    points: list[weakref.ref[torch.Tensor]] = []
    with surefoot.watch(critic, optimizer):
        for _ in range(4):
            point = torch.randn(8, X.shape[1]).requires_grad_()
            points.append(weakref.ref(point))
            (slope,) = torch.autograd.grad(critic(point).sum(), point, create_graph=True)
            loss = critic(X[:8]).mean() + (slope.norm(dim=1) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            del point, slope, loss
        gc.collect()
        assert not any(point() is not None for point in points)
