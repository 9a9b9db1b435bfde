"""Rows of somebody's loop: what it computed, and nothing of it changed or held."""

import pytest
import torch
from torch import nn

from surefoot.events.phases import Phases
from surefoot.meters.log_rows import Rows


def rows_of(loop, **how):
    """What is written of a loop that is given a model and an optimizer."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    found = []
    phases = Phases(model)
    rows = Rows(phases, found.append, **how)
    with phases, rows:
        phases.listeners.append(rows)
        told = loop(model, optimizer)
    return found, told


def test_a_loss_is_what_the_backwards_of_a_step_began_with():
    def loop(model, optimizer):
        told = []
        for number in range(3):
            for _ in range(2):
                loss = model(torch.ones(5, 4)).square().mean() / 2
                loss.backward()
                told.append(loss.item())
            optimizer.param_groups[0]["lr"] = 0.1 * number
            optimizer.step()
        return told

    rows, told = rows_of(loop)
    assert [row.loss for row in rows] == [told[0] + told[1], told[2] + told[3], told[4] + told[5]]
    assert [row.lr for row in rows] == [0.0, 0.1, 0.2]
    assert [(row.step, row.tokens, row.grad_norm) for row in rows] == [(1, 10, None), (2, 10, None), (3, 10, None)]


def test_a_scaled_loss_counts_as_it_was_before():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plain = torch.amp.GradScaler.scale

    def loop(model, optimizer):
        loss = model(torch.ones(5, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        return loss.item()

    rows, told = rows_of(loop)
    assert [row.loss for row in rows] == [told]
    assert torch.amp.GradScaler.scale is plain


def test_what_is_not_one_number_is_not_known():
    def loop(model, optimizer):
        out = model(torch.ones(5, 4))
        torch.autograd.backward(out, torch.ones_like(out))
        optimizer.step()

    rows, _ = rows_of(loop)
    assert [row.loss for row in rows] == [None]


def test_seconds_are_those_from_update_to_update():
    moments = iter([10.0, 11.0, 13.0])

    def loop(model, optimizer):
        for _ in range(2):
            model(torch.ones(5, 4)).sum().backward()
            optimizer.step()

    rows, _ = rows_of(loop, now=lambda: next(moments))
    assert [row.seconds for row in rows] == [1.0, pytest.approx(2.0)]
