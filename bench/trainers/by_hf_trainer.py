"""By the Hugging Face Trainer: `should_save` and `resume_from_checkpoint`, as it comes.

`16-mixed` is refused by it on a CPU. It has no `bf16-true`: the model is cast by hand, as its users do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from surefoot import Recipe
from surefoot.techniques.precision import inputs_in
from trainers.job import Job
from trainers.listener import Listener, Trained
from trainers.works import scheduler

os.environ["HF_HUB_OFFLINE"] = "1"

from accelerate.utils import extract_model_from_parallel
from transformers import PreTrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.utils import logging

extract_model_from_parallel(nn.Identity())  # loads what Accelerate loads when it is first used
NEVER = 1_000_000


class WithLoss(PreTrainedModel):
    """The model as the Trainer wants it: its result holds the loss, and it names its tied weights."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(PreTrainedConfig())
        self.recipe, self.model = recipe, recipe.model()
        self._tied_weights_keys = tied(self)
        if recipe.precision == "bf16-true":
            self.model.to(torch.bfloat16)

    def forward(self, batch: Any) -> dict[str, torch.Tensor]:
        total, count = self.recipe.loss(self.model, inputs_in(self.recipe.precision, batch))
        return {"loss": total / count}


def tied(model: nn.Module) -> dict[str, str]:
    """The further names of parameters that have more than one, and the first."""
    first = {parameter: name for name, parameter in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[parameter] for name, parameter in every if first[parameter] != name}


class Steps(TrainerCallback):
    def __init__(self, listener: Listener, stop: int | None) -> None:
        self.listener, self.stop = listener, stop

    def on_step_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.stop:  # `save_steps` would be that of the run that is gone on with
            control.should_save = True
        self.listener.step_ended(state.global_step)


def train(recipe: Recipe, job: Job, listener: Listener) -> Trained:
    if recipe.precision == "16-mixed":
        raise NotImplementedError("no 16-mixed on a CPU")
    logging.set_verbosity_error()
    set_seed(recipe.seed)
    model = WithLoss(recipe)
    optimizer = recipe.optimizer(model.parameters())
    collate = recipe.collate or default_collate
    arguments = TrainingArguments(
        output_dir=job.folder, use_cpu=True, bf16=recipe.precision == "bf16-mixed", max_steps=job.steps,
        per_device_train_batch_size=recipe.micro_batch_size, gradient_accumulation_steps=recipe.micro_batches(),
        max_grad_norm=recipe.max_grad_norm or 0.0, dataloader_num_workers=recipe.workers, seed=recipe.seed,
        save_strategy="steps", save_steps=NEVER, logging_steps=1, report_to=[], disable_tqdm=True,
        remove_unused_columns=False, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(
        model=model, args=arguments, train_dataset=recipe.data(), callbacks=[Steps(listener, job.stop)],
        data_collator=lambda samples: {"batch": collate(samples)}, optimizers=(optimizer, scheduler(recipe, optimizer)),
    )  # fmt: skip
    last = Path(job.folder) / f"checkpoint-{job.start}"
    trainer.train(resume_from_checkpoint=str(last) if job.start else None)
    return Trained(model.model, optimizer)
