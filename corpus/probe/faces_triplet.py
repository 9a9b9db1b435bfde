"""Metric learning: embeddings of twelve people by triplets from their labels, scored by pairs and by neighbours."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(21)
PEOPLE, FEATURES = 12, 24
faces = torch.randn(PEOPLE, FEATURES)
camera = torch.randn(FEATURES, FEATURES) / FEATURES**0.5


def photos(count):
    who = torch.randint(0, PEOPLE, (count,))
    return (faces[who] + 0.9 * torch.randn(count, FEATURES)) @ camera, who


train, test = TensorDataset(*photos(1800)), TensorDataset(*photos(360))
loader = DataLoader(train, batch_size=60, shuffle=True, drop_last=True)
scored = DataLoader(test, batch_size=120)
net = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)


def embed(photos):
    return nn.functional.normalize(net(photos), dim=1)


def triplet_loss(vectors, who, margin=0.3):
    apart = torch.cdist(vectors, vectors)
    alike = who[:, None] == who[None]
    farthest = (apart * alike).max(1).values
    nearest = (apart + 10.0 * alike).min(1).values
    return torch.relu(farthest - nearest + margin).mean()


for epoch in range(8):
    net.train()
    total = 0.0
    for batch, who in loader:
        loss = triplet_loss(embed(batch), who)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    net.eval()
    vectors, people = [], []
    with torch.no_grad():
        for batch, who in scored:
            vectors.append(embed(batch))
            people.append(who)
    vectors, people = torch.cat(vectors), torch.cat(people)
    apart = torch.cdist(vectors, vectors) + 10.0 * torch.eye(len(vectors))
    recall = (people[apart.argmin(1)] == people).float().mean()
    upper = torch.triu(torch.ones_like(apart, dtype=torch.bool), 1)
    alike, distance = (people[:, None] == people[None])[upper], apart[upper]
    auc = torch.stack([(distance[~alike] > each).float().mean() for each in distance[alike][:200]]).mean()
    print(f"epoch {epoch} loss {total / len(loader):.4f} recall@1 {recall:.4f} pair auc {auc:.4f}")
