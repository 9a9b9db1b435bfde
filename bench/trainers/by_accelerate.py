"""By Accelerate: `prepare`, `accumulate`, `save_state` and `load_state`.

In a resumable run its loader is stateful and its sampler seedable, which is what keeps its place in an epoch.
`16-mixed` is refused by it on a CPU. It has no `bf16-true`: the model is cast by hand, as its users do.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, extract_model_from_parallel, set_seed
from torch.utils.data import DataLoader, IterableDataset

from surefoot import Recipe
from surefoot.techniques.precision import inputs_in
from trainers.job import Job
from trainers.listener import Listener, Trained
from trainers.works import loader_settings, scheduler

extract_model_from_parallel(torch.nn.Identity())  # loads what Accelerate loads when it is first used
MIXED = {"32-true": "no", "bf16-mixed": "bf16", "bf16-true": "no"}


def train(recipe: Recipe, job: Job, listener: Listener) -> Trained:
    if recipe.precision not in MIXED:
        raise NotImplementedError("no 16-mixed on a CPU")
    set_seed(recipe.seed)
    accelerator = Accelerator(
        cpu=True,
        mixed_precision=MIXED[recipe.precision],
        gradient_accumulation_steps=recipe.micro_batches(),
        dataloader_config=DataLoaderConfiguration(
            use_stateful_dataloader=job.resumable, use_seedable_sampler=job.resumable
        ),
    )
    bare = recipe.model()
    if recipe.precision == "bf16-true":
        bare.to(torch.bfloat16)
    plain = recipe.optimizer(bare.parameters())
    data = recipe.data()
    loader = DataLoader(**loader_settings(recipe, data))
    model, optimizer, loader, schedule = accelerator.prepare(bare, plain, loader, scheduler(recipe, plain))
    model.train()
    step, folder = job.start, Path(job.folder)
    if step:
        accelerator.load_state(str(folder / f"step_{step}"))
    with (folder / "log.jsonl").open("a") as log:
        while step < job.steps:
            step_loss = 0.0
            if not isinstance(data, IterableDataset):
                loader.set_epoch(step * recipe.micro_batches() // len(loader))
            for batch in loader:
                with accelerator.accumulate(model):
                    with accelerator.autocast():
                        total, count = recipe.loss(model, inputs_in(recipe.precision, batch))
                        loss = total / count
                    accelerator.backward(loss)
                    step_loss += loss.item() / recipe.micro_batches()
                    if accelerator.sync_gradients:
                        norm = accelerator.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                if not accelerator.sync_gradients:
                    continue
                step += 1
                row = {"step": step, "loss": step_loss, "norm": norm.item(), "lr": schedule.get_last_lr()[0]}
                log.write(json.dumps(row) + "\n")
                log.flush()
                step_loss = 0.0
                if step == job.stop:
                    accelerator.save_state(str(folder / f"step_{step}"))
                listener.step_ended(step)
                if step == job.steps:
                    break
    return Trained(bare, plain)
