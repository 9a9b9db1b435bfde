"""Machine states from windows of four sensors: a GRU with attention under Lightning."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

L.seed_everything(5)
STEPS, SENSORS, STATES = 24, 4, 3


def windows(count):
    state = torch.randint(0, STATES, (count,))
    time = torch.linspace(0, 1, STEPS)
    speed = torch.tensor([2.0, 4.0, 7.0])[state] + 0.3 * torch.randn(count)
    phase = 6.28 * torch.rand(count, SENSORS, 1)
    signal = torch.sin(6.28 * speed[:, None, None] * time + phase).transpose(1, 2)
    return signal + 0.4 * torch.randn(count, STEPS, SENSORS), state


class States(L.LightningModule):
    def __init__(self, width=24):
        super().__init__()
        self.encode = nn.GRU(SENSORS, width, batch_first=True)
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Linear(width, STATES)

    def forward(self, signal):
        states, _ = self.encode(signal)
        mixed, _ = self.attend(states, states, states, need_weights=False)
        return self.head((states + mixed).mean(1))

    def training_step(self, batch, index):
        signal, state = batch
        loss = nn.functional.cross_entropy(self(signal), state)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        signal, state = batch
        scores = self(signal)
        self.log("val_loss", nn.functional.cross_entropy(scores, state))
        self.log("val_acc", (scores.argmax(1) == state).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=4e-3)


train = DataLoader(TensorDataset(*windows(1500)), batch_size=50, shuffle=True)
valid = DataLoader(TensorDataset(*windows(300)), batch_size=100)
trainer = L.Trainer(
    max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(States(), train, valid)
print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})
