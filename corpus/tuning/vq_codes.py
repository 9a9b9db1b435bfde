"""Little tunes through a narrow codebook: nearest codes, gradients passed straight through, commitment."""

import torch
import torch.nn.functional as F
from torch import nn

LENGTH, CODES, WIDTH = 16, 16, 8


class Codebook(nn.Module):
    def __init__(self, commitment=0.25):
        super().__init__()
        self.codes = nn.Embedding(CODES, WIDTH)
        nn.init.uniform_(self.codes.weight, -0.5, 0.5)
        self.commitment = commitment

    def forward(self, z):
        flat = z.flatten(0, 1)
        index = torch.cdist(flat, self.codes.weight).argmin(dim=1)
        chosen = self.codes(index).view_as(z)
        loss = F.mse_loss(chosen, z.detach()) + self.commitment * F.mse_loss(z, chosen.detach())
        return z + (chosen - z).detach(), loss, index


class Tunes(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv1d(1, width, 4, stride=2, padding=1), nn.ReLU(), nn.Conv1d(width, WIDTH, 4, stride=2, padding=1)
        )
        self.book = Codebook()
        self.decode = nn.Sequential(
            nn.ConvTranspose1d(WIDTH, width, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose1d(width, 1, 4, stride=2, padding=1),
        )

    def forward(self, tune):
        z = self.encode(tune).transpose(1, 2)
        quantised, loss, index = self.book(z)
        return self.decode(quantised.transpose(1, 2)), loss, index


def tunes(count, seed):
    g = torch.Generator().manual_seed(seed)
    phase = 6.28 * torch.rand(count, 1, generator=g)
    pitch = torch.tensor([0.4, 0.8, 1.2])[torch.randint(3, (count, 1), generator=g)]
    clean = torch.sin(pitch * torch.arange(LENGTH) + phase)
    return (clean + 0.05 * torch.randn(count, LENGTH, generator=g)).unsqueeze(1)


def main(epochs=6, batch=32):
    torch.manual_seed(12)
    train, held = tunes(512, seed=1), tunes(96, seed=2)
    net = Tunes()
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    for epoch in range(epochs):
        net.train()
        for part in torch.randperm(len(train)).split(batch):
            again, extra, _ = net(train[part])
            loss = F.mse_loss(again, train[part]) + extra
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            again, _, index = net(held)
            error = F.mse_loss(again, held).item()
        print(f"{epoch}: loss {loss.item():.3f}, held out {error:.3f}, codes in use {index.unique().numel()}")


if __name__ == "__main__":
    main()
