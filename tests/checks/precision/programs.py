"""Programs that tests of several rules about precision share."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.programs import X, Y, mlp, named, sgd


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


def in_half_precision(start, *, steps, rows=(X,), targets=(Y,), weight=1.0, towers=1):
    """What is found in a loop in half precision whose scaler begins with this scale, and leaves out what overflows."""
    models = [mlp() for _ in range(towers)]
    optimizers = [sgd(model, lr=1e-4) for model in models]
    scaler = torch.amp.GradScaler("cpu", init_scale=start)
    with surefoot.watch() as seen:
        schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, T_max=steps) for each in optimizers]
        for _ in range(steps):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                for x, y in zip(rows, targets, strict=True):
                    with torch.autocast("cpu", dtype=torch.float16):
                        logits = model(x)
                    scaler.scale(weight * F.cross_entropy(logits.float(), y)).backward()
                scaler.step(optimizer)
            scaler.update()
            for schedule in schedules:
                schedule.step()
    return named(seen.findings)


EARLY = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
