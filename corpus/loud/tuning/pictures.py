import torch
from torch import nn
from torch.nn import functional as F

device = torch.device("cpu")


class Encoder(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.one = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.two = nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.to_code = nn.Linear(8 * 2 * 2, code)

    def forward(self, x):
        x = F.relu(self.one(x))
        x = F.relu(self.two(x))
        return self.to_code(torch.flatten(x, 1))


class Decoder(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.from_code = nn.Linear(code, 8 * 2 * 2)
        self.one = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.two = nn.ConvTranspose2d(4, 1, 2, stride=2)

    def forward(self, code):
        x = F.relu(self.from_code(code)).view(-1, 8, 2, 2)
        x = F.relu(self.one(x))
        return torch.sigmoid(self.two(x))


class Model(nn.Module):
    def __init__(self, code=6):
        super().__init__()
        self.encoder = Encoder(code)
        self.decoder = Decoder(code)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def get_batch(size=7):
    return (torch.rand(size, 1, 8, 8) > 0.5).float().to(device)


torch.manual_seed(5)
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())
weights = torch.linspace(0.5, 1.5, 8, device=device)
for step in range(4):
    batch = get_batch()
    restored = model(batch)
    losses = F.binary_cross_entropy(restored, batch, reduction="none")
    loss = (losses * weights).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
