"""DCGAN on 16x16 images of soft ellipses, with an averaged generator for sampling."""
import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn


def render_ellipses(n, generator, size=16):
    """Grey images in [0, 1]: one ellipse each, brighter when it is lower in the picture."""
    u = torch.rand(n, 4, generator=generator)
    cy, cx = 4.5 + 7 * u[:, 0], 5 + 6 * u[:, 1]
    ry, rx = 1.8 + 1.6 * u[:, 2], 1.8 + 2.4 * u[:, 3]
    grid = torch.arange(size, dtype=torch.float32)
    dy = (grid[None, :, None] - cy[:, None, None]) / ry[:, None, None]
    dx = (grid[None, None, :] - cx[:, None, None]) / rx[:, None, None]
    level = 0.55 + 0.4 * u[:, 0]
    shape = torch.sigmoid(6 * (1 - (dy ** 2 + dx ** 2)))
    return (level[:, None, None] * shape).unsqueeze(1)


class EllipseData:
    def __init__(self, n_train, n_reference, seed):
        gen = torch.Generator().manual_seed(seed)
        images = render_ellipses(n_train + n_reference, gen) * 2 - 1
        self.train, self.reference = images[:n_train], images[n_train:]

    def batches(self, batch_size):
        order = torch.randperm(len(self.train))
        for start in range(0, len(order) - batch_size + 1, batch_size):
            yield self.train[order[start:start + batch_size]]


class Generator(nn.Module):
    def __init__(self, z_dim, ch):
        super().__init__()
        self.z_dim = z_dim
        self.net = nn.Sequential(
            nn.ConvTranspose2d(z_dim, 2 * ch, 4, 1, 0, bias=False), nn.BatchNorm2d(2 * ch), nn.ReLU(),
            nn.ConvTranspose2d(2 * ch, ch, 4, 2, 1, bias=False), nn.BatchNorm2d(ch), nn.ReLU(),
            nn.ConvTranspose2d(ch, 1, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, ch, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(ch, 2 * ch, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * ch, 1, 4))

    def forward(self, x):
        return self.net(x).flatten()


def init_weights(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.05)


@torch.no_grad()
def update_average(average, model, decay):
    for a, p in zip(average.parameters(), model.parameters()):
        a.lerp_(p, 1 - decay)
    for a, b in zip(average.buffers(), model.buffers()):
        a.copy_(b)


def features(images):
    return F.avg_pool2d(images, 4).flatten(1).double()


def frechet(x, y):
    """Frechet distance of two sets of 4x4-pooled images."""
    a, b = features(x), features(y)
    ca, cb = torch.cov(a.T), torch.cov(b.T)
    cross = torch.linalg.eigvals(ca @ cb).real.clamp(min=0).sqrt().sum()
    return ((a.mean(0) - b.mean(0)).pow(2).sum() + ca.trace() + cb.trace() - 2 * cross).item()


@torch.no_grad()
def evaluate(average, disc, data):
    average.eval()
    z = torch.randn(len(data.reference), average.z_dim)
    fakes = average(z)
    accuracy = 0.5 * ((disc(data.reference) > 0).float().mean() + (disc(fakes) < 0).float().mean())
    return frechet(fakes, data.reference), accuracy.item()


def train(args, data, gen, disc):
    average = copy.deepcopy(gen)
    opt_g = torch.optim.Adam(gen.parameters(), lr=args.lr_g, betas=(0.5, 0.99))
    opt_d = torch.optim.Adam(disc.parameters(), lr=args.lr_d, betas=(0.5, 0.99))
    step = 0
    for epoch in range(args.epochs):
        for real in data.batches(args.batch_size):
            ones, zeros = torch.ones(len(real)), torch.zeros(len(real))
            # discriminator, with one-sided label smoothing
            z = torch.randn(len(real), args.z_dim)
            fake = gen(z)
            loss_d = F.binary_cross_entropy_with_logits(disc(real), 0.9 * ones)
            loss_d = loss_d + F.binary_cross_entropy_with_logits(disc(fake.detach()), zeros)
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            # generator, non-saturating loss on the same fakes
            loss_g = F.binary_cross_entropy_with_logits(disc(fake), ones)
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
            update_average(average, gen, args.decay)
            step += 1
            if step % 30 == 0:
                print(f"step {step} loss_d {loss_d.item():.3f} loss_g {loss_g.item():.3f}")
    return average, loss_d.item(), loss_g.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--z-dim", type=int, default=20)
    parser.add_argument("--channels", type=int, default=24)
    parser.add_argument("--lr-g", type=float, default=2e-3)
    parser.add_argument("--lr-d", type=float, default=1e-3)
    parser.add_argument("--decay", type=float, default=0.9)
    args = parser.parse_args()
    torch.manual_seed(5)
    data = EllipseData(1536, 512, seed=8)
    gen, disc = Generator(args.z_dim, args.channels), Discriminator(args.channels)
    gen.apply(init_weights)
    disc.apply(init_weights)
    average, loss_d, loss_g = train(args, data, gen, disc)
    distance, accuracy = evaluate(average, disc, data)
    print(f"final train loss_d {loss_d:.3f} loss_g {loss_g:.3f}, frechet {distance:.3f}, disc accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
