"""An autoencoder that uses its weights both ways: the decoder is the encoder transposed; noise is added on purpose."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tied(nn.Module):
    def __init__(self, inputs=30, hidden=16, code=6):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(hidden, inputs) / inputs**0.5)
        self.w2 = nn.Parameter(torch.randn(code, hidden) / hidden**0.5)
        self.up1, self.up2 = nn.Parameter(torch.zeros(hidden)), nn.Parameter(torch.zeros(code))
        self.down1, self.down2 = nn.Parameter(torch.zeros(inputs)), nn.Parameter(torch.zeros(hidden))

    def encode(self, x):
        return F.linear(torch.tanh(F.linear(x, self.w1, self.up1)), self.w2, self.up2)

    def decode(self, code):
        return F.linear(torch.tanh(F.linear(code, self.w2.T, self.down2)), self.w1.T, self.down1)

    def forward(self, x):
        return self.decode(self.encode(x))


def signals(n, seed):
    g = torch.Generator().manual_seed(seed)
    basis = torch.randn(4, 30, generator=torch.Generator().manual_seed(0))
    return torch.randn(n, 4, generator=g) @ basis / 2


def main():
    torch.manual_seed(25)
    train, test = signals(400, 1), signals(80, 2)
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(4):
        for rows in torch.randperm(len(train)).split(40):
            clean = train[rows]
            loss = F.mse_loss(model(clean + 0.2 * torch.randn_like(clean)), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            print(epoch, loss.item(), F.mse_loss(model(test), test).item())


if __name__ == "__main__":
    main()
