"""Will the glaze crack, and how hot did it get: a LightningModule for many kilns, then its heads for a new kiln."""

import math

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

READINGS = 24


def firings(count, rng, offset=0.0):
    """Firing curves in degrees, whether the glaze cracked, and the peak that a cone in the kiln showed."""
    hours = np.linspace(0, 1, READINGS)
    top = rng.uniform(1050, 1280, (count, 1)) + offset
    soak = rng.uniform(0.4, 0.7, (count, 1))
    cooling = rng.uniform(0.5, 2.5, (count, 1))
    rise = np.minimum(hours / soak, 1.0) ** 1.5
    fall = np.exp(-cooling * np.maximum(hours - soak - 0.1, 0) * 3)
    curve = top * rise * fall + 12 * rng.standard_normal((count, READINGS))
    risk = 2.5 * (cooling[:, 0] - 1.5) + (top[:, 0] - offset - 1165) / 60 + 0.4 * rng.standard_normal(count)
    peak = top[:, 0] + 5 * rng.standard_normal(count)
    x = torch.tensor((curve - 700) / 350, dtype=torch.float32)
    return TensorDataset(x, torch.tensor(risk > 0), torch.tensor((peak - 1165) / 70, dtype=torch.float32))


class KilnNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(READINGS, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.crack = nn.Linear(width, 1)
        self.peak = nn.Linear(width, 1)

    def forward(self, curve):
        h = self.encoder(curve)
        return self.crack(h).squeeze(1), self.peak(h).squeeze(1)


class Kiln(L.LightningModule):
    def __init__(self, net, lr, frozen=False):
        super().__init__()
        self.net, self.lr, self.frozen = net, lr, frozen
        self.right, self.count = 0, 0
        if frozen:
            for name, parameter in net.named_parameters():
                parameter.requires_grad = not name.startswith("encoder")

    def on_train_epoch_start(self):
        if self.frozen:
            self.net.encoder.eval()

    def losses(self, batch):
        curve, cracked, peak = batch
        logit, guess = self.net(curve)
        loss = F.binary_cross_entropy_with_logits(logit, cracked.float()) + 0.5 * F.mse_loss(guess, peak)
        return loss, logit

    def training_step(self, batch, index):
        loss, _ = self.losses(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(batch[0]))
        return loss

    def on_validation_epoch_start(self):
        self.right, self.count = 0, 0

    def validation_step(self, batch, index):
        loss, logit = self.losses(batch)
        self.right += ((logit > 0) == batch[1]).sum().item()
        self.count += len(logit)
        self.log("val_loss", loss, batch_size=len(logit))

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            loss = self.trainer.callback_metrics["val_loss"].item()
            print(f"epoch {self.current_epoch} val loss {loss:.3f} cracks told {self.right / self.count:.1%}")

    def configure_optimizers(self):
        heads = [*self.net.crack.parameters(), *self.net.peak.parameters()]
        optimizer = torch.optim.AdamW(heads if self.frozen else self.net.parameters(), lr=self.lr)
        steps = self.trainer.estimated_stepping_batches
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / 5, 0.5 * (1 + math.cos(math.pi * min(step / steps, 1))))
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def trainer_for(epochs):
    return L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        gradient_clip_val=1.0,
    )


def main():
    L.seed_everything(5)
    rng = np.random.default_rng(5)
    general = Kiln(KilnNet(), lr=1e-2)
    trainer = trainer_for(epochs=4)
    trainer.fit(
        general,
        DataLoader(firings(400, rng), batch_size=32, shuffle=True),
        DataLoader(firings(100, rng), batch_size=50),
    )
    trainer.save_checkpoint("kilns.ckpt")

    # a kiln of its own, that reads thirty degrees too high: the encoder stays, the heads are fitted
    state = torch.load("kilns.ckpt", weights_only=False)["state_dict"]
    net = KilnNet()
    net.load_state_dict({name.removeprefix("net."): value for name, value in state.items()})
    tuned = Kiln(net, lr=5e-3, frozen=True)
    trainer_for(epochs=3).fit(
        tuned,
        DataLoader(firings(120, rng, offset=30), batch_size=24, shuffle=True),
        DataLoader(firings(60, rng, offset=30), batch_size=40),
    )
    torch.save(tuned.net.state_dict(), "new_kiln.pt")


if __name__ == "__main__":
    main()
