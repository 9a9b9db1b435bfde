"""With the Trainer of Hugging Face."""

import sys
import tempfile

from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

from watched.model import Model, Tokens
from watched.notes import Notes


class Noting(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            notes(logs["loss"])


set_seed(0)
notes = Notes()
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, max_steps=int(sys.argv[2]), per_device_train_batch_size=16, learning_rate=1e-3, logging_steps=1,
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(Model(), arguments, train_dataset=Tokens(), callbacks=[Noting()])
    trainer.train()
notes.keep()
