"""Trains a recurrent language model with truncated backpropagation in a loop of Lightning Fabric.

Needs lightning.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, Dataset

VOCAB, BPTT, BATCH, STREAMS = 4000, 32, 16, 6


class Stream(Dataset):
    """Column i of one long text, cut in consecutive pieces."""

    def __init__(self):
        g = torch.Generator().manual_seed(1)
        self.text = torch.randint(0, VOCAB, (BATCH, STREAMS * BPTT + 1), generator=g)

    def __len__(self):
        return STREAMS

    def __getitem__(self, i):
        piece = self.text[:, i * BPTT : (i + 1) * BPTT + 1]
        return piece[:, :-1], piece[:, 1:]


class RNNModel(nn.Module):
    def __init__(self, dim=200, layers=2):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, layers, dropout=0.2, batch_first=True)
        self.decoder = nn.Linear(dim, VOCAB)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, x, hidden):
        y, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(y)), hidden


def main():
    fabric = Fabric(accelerator="auto", devices=1, precision="bf16-mixed" if torch.cuda.is_available() else "32-true")
    fabric.launch()
    fabric.seed_everything(1111)
    with fabric.init_module():
        model = RNNModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(DataLoader(Stream(), batch_size=None, shuffle=False))
    for epoch in range(2):
        model.train()
        hidden = None
        for i, (x, y) in enumerate(loader):
            if hidden is not None:
                hidden = hidden.detach()
            optimizer.zero_grad()
            logits, hidden = model(x, hidden)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=0.25)
            optimizer.step()
            fabric.print(f"| epoch {epoch} | {i}/{len(loader)} batches | loss {loss.item():.3f} | {fabric.device}")
        fabric.save("fabric.ckpt", {"model": model, "optimizer": optimizer, "epoch": epoch})
    fabric.load("fabric.ckpt", {"model": model, "optimizer": optimizer})


if __name__ == "__main__":
    main()
