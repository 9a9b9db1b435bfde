"""Lightning's Trainer: bf16-mixed, clipping, a validation loop, logged values, a checkpoint callback."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU())
        self.head = nn.Linear(768, 10)

    def loss(self, batch):
        x, y = batch
        scores = self.head(self.net(x))
        return nn.functional.cross_entropy(scores, y), (scores.argmax(1) == y).float().mean()

    def training_step(self, batch, index):
        loss, accuracy = self.loss(batch)
        self.log("loss", loss, prog_bar=True)
        self.log("accuracy", accuracy)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss(batch)[0])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)]


L.seed_everything(0)
data = TensorDataset(torch.randn(1024, 1, 28, 28), torch.randint(0, 10, (1024,)))
saves = L.pytorch.callbacks.ModelCheckpoint(dirpath="digits", monitor="val_loss")
trainer = L.Trainer(
    max_steps=8, accelerator="auto", devices=1, precision="bf16-mixed", gradient_clip_val=1.0, callbacks=[saves],
    num_sanity_val_steps=1, log_every_n_steps=1, val_check_interval=2,
)  # fmt: skip
trainer.fit(Digits(), DataLoader(data, batch_size=128, shuffle=True), DataLoader(data, batch_size=128))
