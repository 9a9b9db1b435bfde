"""VQ autoencoder for small noisy glyphs: denoise 12x12 images through a grid of discrete codes."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class GlyphSet(torch.utils.data.Dataset):
    """Boxes, bars and crosses at random places; x is the noisy image, y the clean one."""

    def __init__(self, n, seed, noise=0.25):
        rng = np.random.default_rng(seed)
        clean = np.zeros((n, 1, 12, 12), dtype=np.float32)
        for img in clean[:, 0]:
            for _ in range(rng.integers(1, 4)):
                r, c, kind = rng.integers(0, 8), rng.integers(0, 8), rng.integers(3)
                shade = rng.choice([0.6, 1.0])
                if kind == 0:
                    img[r:r + 4, c:c + 4] = shade
                elif kind == 1:
                    img[r + 1:r + 3, :] = shade
                else:
                    img[r:r + 5, c + 2] = img[r + 2, c:c + 5] = shade
        self.clean = torch.from_numpy(clean)
        self.noisy = self.clean + noise * torch.from_numpy(rng.normal(size=clean.shape).astype(np.float32))

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        return self.noisy[i], self.clean[i]


class Quantizer(nn.Module):
    def __init__(self, n_codes, dim, beta=0.25):
        super().__init__()
        self.n_codes, self.beta = n_codes, beta
        self.book = nn.Embedding(n_codes, dim)
        nn.init.uniform_(self.book.weight, -1.0 / n_codes, 1.0 / n_codes)

    def nearest(self, flat):
        e = self.book.weight
        dist = flat.pow(2).sum(1, keepdim=True) + e.pow(2).sum(1) - 2 * flat @ e.T
        return dist.argmin(1)

    def forward(self, z):  # [batch, dim, h, w]
        zl = z.permute(0, 2, 3, 1).contiguous()
        codes = self.nearest(zl.reshape(-1, zl.size(-1)))
        zq = self.book(codes).view_as(zl)
        loss = F.mse_loss(zq, zl.detach()) + self.beta * F.mse_loss(zl, zq.detach())
        zq = zl + (zq - zl).detach()
        return zq.permute(0, 3, 1, 2), loss, codes.view(zl.shape[:-1])


class VQAutoencoder(nn.Module):
    def __init__(self, width=24, dim=8, n_codes=48):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(),
                                     nn.Conv2d(width, dim, 1))
        self.quantizer = Quantizer(n_codes, dim)
        self.decoder = nn.Sequential(nn.Conv2d(dim, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(width, 1, 4, 2, 1))

    def forward(self, x):
        z = self.encoder(x)
        zq, vq_loss, codes = self.quantizer(z)
        return self.decoder(zq), vq_loss, codes


@torch.no_grad()
def evaluate(model, data):
    """Mean squared error against the clean images and perplexity of the codes."""
    model.eval()
    recon, _, codes = model(data.noisy)
    usage = torch.bincount(codes.flatten(), minlength=model.quantizer.n_codes).float()
    p = usage / usage.sum()
    perplexity = torch.exp(-(p * (p + 1e-10).log()).sum())
    return F.mse_loss(recon, data.clean).item(), perplexity.item()


def train(epochs=8, lr=4e-3, batch=32):
    torch.manual_seed(8)
    data, test = GlyphSet(800, 1), GlyphSet(200, 2)
    model = VQAutoencoder()
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    loader = torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True)
    print("untrained: test mse %.4f, perplexity %.1f" % evaluate(model, test))
    for epoch in range(epochs):
        model.train()
        sums = np.zeros(2)
        for noisy, clean in loader:
            recon, vq_loss, _ = model(noisy)
            rec_loss = F.mse_loss(recon, clean)
            loss = rec_loss + vq_loss
            opt.zero_grad()
            loss.backward()
            opt.step()
            sums += [rec_loss.item(), vq_loss.item()]
        print("epoch %d: reconstruction %.4f, vq %.4f; test mse %.4f, perplexity %.1f"
              % (epoch + 1, *(sums / len(loader)), *evaluate(model, test)))
    print("trained: test mse %.4f, perplexity %.1f" % evaluate(model, test))


if __name__ == "__main__":
    train()
