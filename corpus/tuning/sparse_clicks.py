"""Clicks on adverts: tables of users and adverts with sparse gradients, most rows of which a step does not touch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

USERS, ADVERTS, TASTES, WIDTH = 240, 160, 3, 8


def clicks(count: int, seed: int) -> TensorDataset:
    """Who saw what at which hour, and whether it was clicked; users and adverts have hidden tastes."""
    hidden = torch.Generator().manual_seed(0)
    user_group, advert_group = (torch.randint(TASTES, (n,), generator=hidden) for n in (USERS, ADVERTS))
    g = torch.Generator().manual_seed(seed)
    user, advert = (torch.randint(n, (count,), generator=g) for n in (USERS, ADVERTS))
    hour = torch.rand(count, 1, generator=g)
    liking = 4.0 * (user_group[user] == advert_group[advert]) - 2.0 + hour.squeeze(1)
    clicked = torch.rand(count, generator=g) < torch.sigmoid(liking)
    return TensorDataset(user, advert, hour, clicked.float())


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, WIDTH, sparse=True)
        self.adverts = nn.Embedding(ADVERTS, WIDTH, sparse=True)
        for table in (self.users, self.adverts):
            nn.init.normal_(table.weight, std=0.1)
        self.deep = nn.Sequential(nn.Linear(2 * WIDTH + 1, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, user, advert, hour):
        u, a = self.users(user), self.adverts(advert)
        match = (u * a).sum(dim=1)
        return match + self.deep(torch.cat([u, a, hour - 0.5], dim=1)).squeeze(1)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    model.eval()
    loss = right = count = 0.0
    for user, advert, hour, clicked in loader:
        logit = model(user, advert, hour)
        loss += F.binary_cross_entropy_with_logits(logit, clicked, reduction="sum").item()
        right += ((logit > 0) == (clicked > 0)).sum().item()
        count += len(clicked)
    return loss / count, right / count


def main() -> None:
    torch.manual_seed(41)
    train = DataLoader(clicks(6000, seed=1), batch_size=64, shuffle=True)
    test = DataLoader(clicks(1000, seed=2), batch_size=250)
    model = Clicks()
    tables = [model.users.weight, model.adverts.weight]
    sparse_optimizer = torch.optim.SparseAdam(tables, lr=1e-2)
    dense_optimizer = torch.optim.Adam(model.deep.parameters(), lr=5e-3)
    for epoch in range(1, 4):
        model.train()
        summed = 0.0
        for user, advert, hour, clicked in train:
            loss = F.binary_cross_entropy_with_logits(model(user, advert, hour), clicked)
            sparse_optimizer.zero_grad()
            dense_optimizer.zero_grad()
            loss.backward()
            sparse_optimizer.step()
            dense_optimizer.step()
            summed += loss.item() * len(clicked)
        loss, right = evaluate(model, test)
        print(f"epoch {epoch} train {summed / len(train.dataset):.4f} test {loss:.4f} right {right:.1%}")
    torch.save(model.state_dict(), "clicks.pt")


if __name__ == "__main__":
    main()
