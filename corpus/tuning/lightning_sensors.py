"""Alarms of a machine from its sensors: a LightningModule with several yes-or-no outputs and a cosine."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SENSORS, ALARMS, EPOCHS = 10, 3, 3


def readings(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, SENSORS, generator=g)
    score = torch.stack([x[:, 0] + x[:, 1], x[:, 2] * x[:, 3], x[:, 4] - x[:, 5].abs()], dim=1)
    return TensorDataset(x, (score > 0.3).float())


class AlarmNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = nn.Linear(SENSORS, width)
        self.norm = nn.BatchNorm1d(width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.drop = nn.Dropout(0.2)
        self.alarms = nn.Linear(width, ALARMS)

    def forward(self, x):
        x = torch.relu(self.norm(self.enter(x)))
        for layer in self.hidden:
            x = x + torch.relu(layer(x))
        return self.alarms(self.drop(x))


class AlarmModule(L.LightningModule):
    def __init__(self, width=32, lr=5e-3):
        super().__init__()
        self.net = AlarmNet(width)
        self.lr = lr
        self.criterion = nn.BCEWithLogitsLoss()
        self.seen = []

    def training_step(self, batch, batch_idx):
        x, alarms = batch
        loss = self.criterion(self.net(x), alarms)
        self.seen.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, alarms = batch
        logits = self.net(x)
        right = (torch.sigmoid(logits) > 0.5).float() == alarms
        self.log("right", right.float().mean(), on_epoch=True, batch_size=len(x))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
        return [optimizer], [{"scheduler": scheduler, "interval": "epoch"}]


if __name__ == "__main__":
    L.seed_everything(150, verbose=False)
    train_loader = DataLoader(readings(320, seed=1), batch_size=20, shuffle=True)
    val_loader = DataLoader(readings(70, seed=2), batch_size=20)
    module = AlarmModule()
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        gradient_clip_val=0.5,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, train_loader, val_loader)
    print(f"loss {sum(module.seen[-16:]) / 16:.3f}, right {trainer.callback_metrics['right']:.3f}")
    torch.save(module.net.state_dict(), "alarms.pt")
