"""Embeddings of fingerprints of machines: triplets whose negatives are mined anew before each epoch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


def machines(count, prints, seed):
    """Prints of machines: 6 numbers that stay and 14 that change with the weather, mixed by the sensor."""
    g = torch.Generator().manual_seed(seed)
    sensor = torch.randn(20, 20, generator=torch.Generator().manual_seed(30)) / 20**0.5
    signature = torch.randn(count, 1, 6, generator=g).expand(-1, prints, -1)
    weather = torch.randn(count, prints, 14, generator=g)
    x = torch.cat([signature, weather], dim=-1) @ sensor + 0.02 * torch.randn(count, prints, 20, generator=g)
    owner = torch.arange(count).repeat_interleave(prints)
    return x.flatten(0, 1), owner


class Embedder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(20, 64), nn.LayerNorm(64), nn.ReLU(), nn.Dropout(0.05), nn.Linear(64, 64), nn.ReLU()
        )
        self.project = nn.Linear(64, dim)

    def forward(self, x):
        return F.normalize(self.project(self.net(x)), dim=-1)


class Triplets(Dataset):
    """Anchor, another print of its machine, and one of the nearer prints of other machines."""

    def __init__(self, x, owner, hardest=60):
        self.x, self.owner, self.hardest = x, owner, hardest
        self.same = [((owner == o) & (torch.arange(len(owner)) != i)).nonzero()[:, 0] for i, o in enumerate(owner)]
        self.negatives = [(owner != o).nonzero()[:, 0] for o in owner]

    @torch.no_grad()
    def mine(self, model):
        model.eval()
        z = model(self.x)
        likeness = z @ z.T
        likeness[self.owner[:, None] == self.owner[None, :]] = -2.0
        self.negatives = list(likeness.topk(self.hardest, dim=1).indices)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        def one_of(rows):
            return rows[torch.randint(len(rows), ())]

        return self.x[i], self.x[one_of(self.same[i])], self.x[one_of(self.negatives[i])]


def triplet_loss(anchor, positive, negative, margin=0.3):
    """Easy triplets count nothing, so some batches may have little to learn from."""
    closer = (anchor * positive).sum(dim=-1)
    farther = (anchor * negative).sum(dim=-1)
    return F.relu(farther - closer + margin).mean()


@torch.no_grad()
def recall_at_1(model, x, owner):
    model.eval()
    z = model(x)
    likeness = (z @ z.T).fill_diagonal_(-2.0)
    return (owner[likeness.argmax(dim=1)] == owner).float().mean().item()


def main():
    torch.manual_seed(31)
    triplets = Triplets(*machines(40, 8, seed=32))
    unseen = machines(25, 6, seed=33)  # other machines
    loader = DataLoader(triplets, batch_size=32, shuffle=True)
    model = Embedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    print(f"before: recall {recall_at_1(model, *unseen):.3f}")
    for epoch in range(8):
        if epoch > 0:  # random negatives first: the hardest ones of an untrained net make it collapse
            triplets.mine(model)
        model.train()
        total = 0.0
        for anchor, positive, negative in loader:
            loss = triplet_loss(model(anchor), model(positive), model(negative))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(anchor)
        print(f"{epoch}: loss {total / len(triplets):.3f}, recall {recall_at_1(model, *unseen):.3f}")


if __name__ == "__main__":
    main()
