"""A GAN with spectral normalisation and a gradient penalty, which needs a second derivative."""

import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def up(channels: int, out: int, *how: int) -> list[nn.Module]:
    return [nn.ConvTranspose2d(channels, out, *how, bias=False), nn.BatchNorm2d(out), nn.ReLU(True)]


make = nn.Sequential(*up(64, 96, 4, 1, 0), *up(96, 48, 4, 2, 1), nn.ConvTranspose2d(48, 3, 4, 2, 1), nn.Tanh())
middle = nn.utils.parametrizations.spectral_norm(nn.Conv2d(48, 96, 4, 2, 1))
judge = nn.Sequential(
    nn.Conv2d(3, 48, 4, 2, 1), nn.LeakyReLU(0.2, True), middle, nn.LeakyReLU(0.2, True), nn.Conv2d(96, 1, 4)
)
make.to(device)
judge.to(device)
for module in make.modules():
    if isinstance(module, nn.ConvTranspose2d):
        nn.init.normal_(module.weight.data, 0.0, 0.02)
of_make = torch.optim.Adam(make.parameters(), 2e-4, betas=(0.5, 0.999))
of_judge = torch.optim.Adam(judge.parameters(), 2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
fixed = torch.randn(16, 64, 1, 1, device=device)
for step in range(6):
    real = torch.randn(24, 3, 16, 16).to(device)
    label = torch.full((len(real),), 1.0, device=device)
    of_judge.zero_grad()
    of_real = criterion(judge(real).view(-1), label)
    of_real.backward()
    made = make(torch.randn(len(real), 64, 1, 1, device=device))
    label.fill_(0.0)
    of_made = criterion(judge(made.detach()).view(-1), label)
    of_made.backward()
    share = torch.rand(len(real), 1, 1, 1, device=device)
    mixed = (share * real + (1 - share) * made.detach()).requires_grad_(True)
    (slope,) = torch.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
    penalty = 10 * ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
    penalty.backward()
    of_judge.step()
    of_make.zero_grad()
    label.fill_(1.0)
    loss = criterion(judge(made).view(-1), label)
    loss.backward()
    of_make.step()
    print(f"{step} {(of_real + of_made).item():.3f} {loss.item():.3f} {penalty}")
    with torch.no_grad():
        image = make(fixed).detach().cpu()
