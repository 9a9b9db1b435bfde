"""A GAN that draws one soft dot on an empty picture of 12 by 12."""

from itertools import islice

import torch
from torch import nn

SIZE, NOISE = 12, 16
rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")


def real_dots(batch, generator):
    """Endless batches of true pictures in -1 .. 1."""
    while True:
        centre = 2 + (SIZE - 5) * torch.rand(batch, 2, 1, 1, generator=generator)
        width = 1.2 + 0.6 * torch.rand(batch, 1, 1, generator=generator)
        distance = (rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2
        yield 2 * torch.exp(-distance / (2 * width**2)).unsqueeze(1) - 1


class Generator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.start = nn.Linear(NOISE, width * 9)
        self.up = nn.Sequential(
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, width // 2, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width // 2),
            nn.ReLU(),
            nn.ConvTranspose2d(width // 2, 1, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.up(self.start(z).unflatten(1, (-1, 3, 3)))


class Critic(nn.Sequential):
    def __init__(self, width=16):
        super().__init__(
            nn.Conv2d(1, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * width * 9, 1),
        )


@torch.no_grad()
def roundness(generator, z):
    """How near drawn pictures are to the true dot with the same brightest point."""
    generator.eval()
    pictures = generator(z)
    generator.train()
    brightest = pictures.flatten(1).argmax(dim=1)
    r, c = (brightest // SIZE).view(-1, 1, 1), (brightest % SIZE).view(-1, 1, 1)
    ideal = 2 * torch.exp(-((rows - r) ** 2 + (columns - c) ** 2) / 4.5) - 1
    return (pictures.squeeze(1) - ideal).abs().mean().item()


def main(steps=160, batch=32):
    torch.manual_seed(9)
    g_net, d_net = Generator(), Critic()
    g_opt = torch.optim.Adam(g_net.parameters(), lr=1e-3, betas=(0.5, 0.999))
    d_opt = torch.optim.Adam(d_net.parameters(), lr=5e-4, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(batch, 1), torch.zeros(batch, 1)
    always = torch.randn(64, NOISE)
    stream = real_dots(batch, torch.Generator().manual_seed(10))

    for step, real in enumerate(islice(stream, steps), start=1):
        fake = g_net(torch.randn(batch, NOISE))
        d_loss = bce(d_net(real), ones) + bce(d_net(fake.detach()), zeros)
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()

        g_loss = bce(d_net(fake), ones)
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()

        if step % 40 == 0:
            print(
                f"{step}: critic {d_loss.item():.3f}, generator {g_loss.item():.3f}, off {roundness(g_net, always):.3f}"
            )
    torch.save({"generator": g_net.state_dict(), "critic": d_net.state_dict()}, "dots.pt")


if __name__ == "__main__":
    main()
