"""Tones heard in a sound wave, in their order: convolutions, a GRU and CTC in a LightningModule."""

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TONES, SAMPLES = 5, 320
PITCHES = np.array([0.10, 0.19, 0.31, 0.44, 0.60]) * np.pi


class Waves(Dataset):
    """Two to four tones one after the other, silence between them, some noise."""

    def __init__(self, count, seed, noise):
        rng = np.random.default_rng(seed)
        self.noise = noise
        self.waves = np.zeros((count, SAMPLES), dtype=np.float32)
        self.tones = []
        for wave in self.waves:
            tones = rng.integers(0, TONES, rng.integers(2, 5))
            at = int(rng.integers(4, 16))
            for tone in tones:
                length = int(rng.integers(36, 56))
                wave[at : at + length] = np.sin(PITCHES[tone] * np.arange(length) + rng.uniform(0, 6))
                at += length + int(rng.integers(12, 20))
            self.tones.append(torch.tensor(tones) + 1)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        wave = torch.from_numpy(self.waves[index])
        if self.noise:
            wave = wave + self.noise * torch.randn(SAMPLES)
        return wave, self.tones[index]


def collate(rows):
    waves = torch.stack([wave for wave, _ in rows])
    lengths = torch.tensor([len(tones) for _, tones in rows])
    return waves, torch.cat([tones for _, tones in rows]), lengths


class Listener(L.LightningModule):
    def __init__(self, width=32, lr=1e-2):
        super().__init__()
        self.lr = lr
        self.ear = nn.Sequential(
            nn.Conv1d(1, width, 16, stride=4), nn.ReLU(), nn.Conv1d(width, width, 5, stride=3), nn.ReLU()
        )
        self.memory = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.05)
        self.name = nn.Linear(2 * width, 1 + TONES)
        self.ctc = nn.CTCLoss(blank=0)

    def forward(self, waves):
        heard = self.ear(waves.unsqueeze(1)).transpose(1, 2)
        states, _ = self.memory(heard)
        return self.name(self.drop(states))

    def loss_of(self, batch):
        waves, tones, lengths = batch
        logits = self(waves)
        log_probs = logits.log_softmax(-1).transpose(0, 1)
        heard = torch.full((len(waves),), log_probs.shape[0])
        return self.ctc(log_probs, tones, heard, lengths), logits

    def training_step(self, batch, batch_idx):
        loss, _ = self.loss_of(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        loss, logits = self.loss_of(batch)
        right = 0
        for guess, tones in zip(logits.argmax(-1), batch[1].split(batch[2].tolist()), strict=True):
            path = torch.unique_consecutive(guess)
            right += torch.equal(path[path > 0], tones)
        self.log("valid_loss", loss, batch_size=len(logits))
        self.log("valid_right", right / len(logits), batch_size=len(logits))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        steps = self.trainer.estimated_stepping_batches
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    L.seed_everything(6)
    train_set, valid_set = Waves(320, seed=1, noise=0.1), Waves(44, seed=2, noise=0.0)
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid_set, batch_size=16, collate_fn=collate)
    trainer = L.Trainer(
        max_epochs=5,
        accelerator="cpu",
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Listener()
    trainer.fit(model, train_loader, valid_loader)
    print({key: round(value.item(), 3) for key, value in trainer.callback_metrics.items()})
    torch.save(model.state_dict(), "listener.pt")


if __name__ == "__main__":
    main()
