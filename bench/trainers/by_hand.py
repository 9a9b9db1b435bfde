"""By hand: the loop that people write, with the same techniques; the measure of what a trainer costs.

It writes the loss, the norm and the learning rate of every step to a file. It saves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from surefoot import Recipe
from trainers.job import Job
from trainers.listener import Listener, Trained
from trainers.works import loader_settings, scheduler


def endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def train(recipe: Recipe, job: Job, listener: Listener) -> Trained:
    torch.manual_seed(recipe.seed)
    model = recipe.model()
    optimizer = recipe.optimizer(model.parameters())
    schedule = scheduler(recipe, optimizer)
    batches = endless(DataLoader(**loader_settings(recipe, recipe.data())))
    mixed = torch.autocast("cpu", torch.bfloat16) if recipe.precision == "bf16-mixed" else nullcontext()
    micro_batches = recipe.micro_batches()
    model.train()
    with (Path(job.folder) / "log.jsonl").open("a") as log:
        for step in range(1, job.steps + 1):
            step_loss = 0.0
            for _ in range(micro_batches):
                with mixed:
                    total, count = recipe.loss(model, next(batches))
                    loss = total / count / micro_batches
                loss.backward()
                step_loss += loss.item()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
            lr = schedule.get_last_lr()[0]
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            log.write(json.dumps({"step": step, "loss": step_loss, "norm": norm.item(), "lr": lr}) + "\n")
            log.flush()
            listener.step_ended(step)
    return Trained(model, optimizer)
