"""Trains an adversarial autoencoder as a LightningModule with two optimizers and manual optimisation.

Needs lightning.
"""

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset, random_split


class Pictures(L.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        g = torch.Generator().manual_seed(0)
        full = TensorDataset(torch.rand(320, 1, 32, 32, generator=g))
        self.train, self.val = random_split(full, [256, 64], generator=g)

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.batch_size)


class AdversarialAutoencoder(L.LightningModule):
    def __init__(self, latent=32, lr=2e-4, clip=0.5, accumulate=2):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4096, latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, 4096),
            nn.ReLU(),
            nn.Unflatten(1, (64, 8, 8)),
            nn.ConvTranspose2d(64, 32, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, 2, 1),
            nn.Sigmoid(),
        )
        self.critic = nn.Sequential(nn.Linear(latent, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
        self.register_buffer("fixed", torch.randn(8, latent))

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, batch_idx):
        opt_ae, opt_c = self.optimizers()
        (x,) = batch
        self.toggle_optimizer(opt_ae)
        z = self.encoder(x)
        reconstruction = F.mse_loss(self.decoder(z), x)
        fool = F.softplus(-self.critic(z)).mean()
        self.manual_backward((reconstruction + 0.05 * fool) / self.hparams.accumulate)
        last = (batch_idx + 1) % self.hparams.accumulate == 0
        if last:
            self.clip_gradients(opt_ae, gradient_clip_val=self.hparams.clip, gradient_clip_algorithm="norm")
            opt_ae.step()
            opt_ae.zero_grad()
        self.untoggle_optimizer(opt_ae)

        self.toggle_optimizer(opt_c)
        prior = torch.randn_like(z).type_as(x)
        loss_c = F.softplus(-self.critic(prior)).mean() + F.softplus(self.critic(z.detach())).mean()
        opt_c.zero_grad()
        self.manual_backward(loss_c)
        opt_c.step()
        self.untoggle_optimizer(opt_c)
        self.log_dict({"ae": reconstruction, "fool": fool, "critic": loss_c}, prog_bar=True)
        if last:
            for schedule in self.lr_schedulers():
                schedule.step()

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        self.log("val_mse", F.mse_loss(self(x), x), sync_dist=True)

    def on_train_epoch_end(self):
        with torch.no_grad():
            samples = self.decoder(self.fixed)
        print("mean brightness of samples:", samples.mean().item())

    def configure_optimizers(self):
        ae = torch.optim.Adam(
            [*self.encoder.parameters(), *self.decoder.parameters()], lr=self.hparams.lr, betas=(0.5, 0.9)
        )
        critic = torch.optim.RMSprop(self.critic.parameters(), lr=self.hparams.lr)
        return [ae, critic], [torch.optim.lr_scheduler.ExponentialLR(o, 0.98) for o in (ae, critic)]


if __name__ == "__main__":
    L.seed_everything(7, workers=True)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=1,
        logger=CSVLogger("logs", name="aae"),
        callbacks=[ModelCheckpoint(monitor="val_mse"), LearningRateMonitor()],
        log_every_n_steps=2,
        enable_progress_bar=False,
    )
    trainer.fit(AdversarialAutoencoder(), datamodule=Pictures())
    print({k: round(v.item(), 4) for k, v in trainer.callback_metrics.items()})
