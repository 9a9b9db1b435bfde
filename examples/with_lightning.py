import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from surefoot.integrations.lightning import SurefootCallback


class Reviews(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

    def training_step(self, batch, number):
        scores, labels = batch
        return nn.functional.cross_entropy(self.layers(scores), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


pl.seed_everything(0)
scores = torch.randn(1000, 4)
reviews = TensorDataset(scores, (scores.sum(dim=1) > 0).long())

trainer = pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, callbacks=[SurefootCallback("runs/lightning")])
trainer.fit(Reviews(), DataLoader(reviews, batch_size=64, shuffle=True))
