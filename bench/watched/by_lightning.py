"""With Lightning: a module, a Trainer, a callback that hears of each step."""

import logging
import sys
import warnings

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

from watched.model import Model, Tokens
from watched.notes import Notes

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def training_step(self, batch, number):
        return self.model(**batch)["loss"]

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Noting(pl.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        notes(outputs["loss"].item())


pl.seed_everything(0, verbose=False)
notes = Notes()
trainer = pl.Trainer(
    accelerator="cpu", max_steps=int(sys.argv[2]), logger=False, enable_checkpointing=False, callbacks=[Noting()],
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Module(), DataLoader(Tokens(), batch_size=16, shuffle=True))
notes.keep()
