"""A variational autoencoder of small pictures: reconstruction and KL, Adam."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(4)


class VAE(nn.Module):
    def __init__(self, pixels=64, width=48, latent=6):
        super().__init__()
        self.enc = nn.Linear(pixels, width)
        self.mu = nn.Linear(width, latent)
        self.logvar = nn.Linear(width, latent)
        self.dec1 = nn.Linear(latent, width)
        self.dec2 = nn.Linear(width, pixels)

    def encode(self, x):
        h = F.relu(self.enc(x))
        return self.mu(h), self.logvar(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = self.reparameterize(mu, logvar)
        return self.dec2(F.relu(self.dec1(z))), mu, logvar


def loss_function(logits, x, mu, logvar):
    bce = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (bce + kld) / len(x)


generator = torch.Generator().manual_seed(2)
strokes = (torch.rand(8, 64, generator=generator) < 0.3).float()
pictures = strokes[torch.randint(0, 8, (192,), generator=generator)]
pictures = (pictures - (torch.rand(192, 64, generator=generator) < 0.15).float()).abs()
loader = DataLoader(pictures[:160], batch_size=16, shuffle=True)

model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    model.train()
    train_loss = 0.0
    for batch_idx, data in enumerate(loader):
        optimizer.zero_grad()
        logits, mu, logvar = model(data)
        loss = loss_function(logits, data, mu, logvar)
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
    model.eval()
    with torch.no_grad():
        logits, mu, logvar = model(pictures[160:])
        test_loss = loss_function(logits, pictures[160:], mu, logvar).item()
    print(f"epoch {epoch} train {train_loss / len(loader):.3f} test {test_loss:.3f}")
