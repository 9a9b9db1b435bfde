import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from surefoot import Recipe


class Molecules(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        atoms = torch.randint(0, 9, (8,), generator=generator)
        bonds = (torch.rand(8, 8, generator=generator) > 0.7).float()
        label = atoms.sum() % 3
        return {"atoms": atoms, "bonds": bonds, "label": label}


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.own = nn.Linear(width, width)
        self.others = nn.Linear(width, width)

    def forward(self, nodes, bonds):
        messages = bonds @ self.others(nodes)
        return F.relu(self.own(nodes) + messages)


class GraphNet(nn.Module):
    def __init__(self, width=16, classes=3):
        super().__init__()
        self.embed = nn.Embedding(9, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, atoms, bonds):
        nodes = self.embed(atoms)
        for layer in self.layers:
            nodes = layer(nodes, bonds)
        pooled = self.norm(nodes).mean(dim=1)
        return self.head(pooled)


def graph_loss(model, batch):
    logits = model(batch["atoms"], batch["bonds"])
    return F.cross_entropy(logits, batch["label"])


def graph(width: int = 16, lr: float = 1e-3) -> Recipe:
    return Recipe(
        model=lambda: GraphNet(width),
        data=lambda: Molecules(),
        loss=graph_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        micro_batch_size=4,
        max_steps=3,
    )
