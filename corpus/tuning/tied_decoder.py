"""Sparse orders of a shop compressed by an autoencoder that decodes with the transposed weights of its encoder."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

ITEMS = 40


class TiedAutoencoder(nn.Module):
    def __init__(self, sizes=(ITEMS, 24, 8), drop=0.1):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.empty(b, a)) for a, b in pairwise(sizes)])
        self.biases_in = nn.ParameterList([nn.Parameter(torch.zeros(b)) for b in sizes[1:]])
        self.biases_out = nn.ParameterList([nn.Parameter(torch.zeros(a)) for a in sizes[:-1]])
        for weight in self.weights:
            nn.init.xavier_uniform_(weight)
        self.drop = drop

    def encode(self, x):
        x = F.dropout(x, self.drop, training=self.training)
        for weight, bias in zip(self.weights, self.biases_in, strict=False):
            x = torch.tanh(F.linear(x, weight, bias))
        return x

    def decode(self, code):
        last = len(self.weights) - 1
        for i in range(last, -1, -1):
            code = F.linear(code, self.weights[i].T, self.biases_out[i])
            code = torch.tanh(code) if i else code
        return code

    def forward(self, x):
        return self.decode(self.encode(x))


def orders(count, seed):
    """Each customer has one of five habits; a habit makes eight items likely."""
    g = torch.Generator().manual_seed(seed)
    likely = torch.full((5, ITEMS), 0.03)
    for habit in range(5):
        likely[habit, 8 * habit : 8 * habit + 8] = 0.75
    return torch.bernoulli(likely[torch.randint(5, (count,), generator=g)], generator=g)


def loss_of(model, basket):
    return F.binary_cross_entropy_with_logits(model(basket), basket)


def run(epochs=5):
    torch.manual_seed(90)
    train, test = orders(600, seed=1), orders(120, seed=2)
    model = TiedAutoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    for epoch in range(epochs):
        model.train()
        for start in range(0, 600, 30):
            if start == 0:
                order = torch.randperm(600)
            loss = loss_of(model, train[order[start : start + 30]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            print(f"epoch {epoch}: train {loss.item():.3f}, test {loss_of(model, test).item():.3f}")
    torch.save(model.state_dict(), "orders.pt")


if __name__ == "__main__":
    run()
