"""By Lightning: seeded workers, `ModelCheckpoint` every so many steps, `ckpt_path`.

In a resumable run, its loader is torchdata's `StatefulDataLoader`, whose place in the epoch Lightning keeps. `16-mixed`
is refused here: on a CPU Lightning takes `bf16-mixed` in its place.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from surefoot import Recipe
from trainers.job import Job
from trainers.listener import Listener, Trained
from trainers.works import loader_settings, scheduler

NEVER = 1_000_000


class Module(pl.LightningModule):
    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe, self.model = recipe, recipe.model()

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        total, count = self.recipe.loss(self.model, batch)
        loss = total / count
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = self.recipe.optimizer(self.model.parameters())
        return [optimizer], [{"scheduler": scheduler(self.recipe, optimizer), "interval": "step"}]


class Steps(pl.Callback):
    def __init__(self, listener: Listener) -> None:
        self.listener, self.last = listener, -1

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.last = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step != self.last:
            self.last = trainer.global_step
            self.listener.step_ended(self.last)


def train(recipe: Recipe, job: Job, listener: Listener) -> Trained:
    if recipe.precision == "16-mixed":
        raise NotImplementedError("no 16-mixed on a CPU")
    quiet()
    pl.seed_everything(recipe.seed, workers=True, verbose=False)
    module = Module(recipe)
    settings = loader_settings(recipe, recipe.data())
    loader = StatefulDataLoader(**settings) if job.resumable else DataLoader(**settings)
    save = ModelCheckpoint(job.folder, "{step}", every_n_train_steps=job.stop or NEVER, save_top_k=-1)
    trainer = pl.Trainer(
        accelerator="cpu", precision=recipe.precision, max_steps=job.steps, max_epochs=-1,
        accumulate_grad_batches=recipe.micro_batches(), gradient_clip_val=recipe.max_grad_norm,
        logger=CSVLogger(job.folder), log_every_n_steps=1, callbacks=[save, Steps(listener)],
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    last = Path(job.folder) / f"step={job.start}.ckpt" if job.start else None
    trainer.fit(module, loader, ckpt_path=last, weights_only=False if last else None)
    return Trained(module.model, trainer.optimizers[0])


def quiet() -> None:
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
