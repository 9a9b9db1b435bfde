"""A dictionary for patches: codes are found without gradients, then the atoms take a step and are brought to length."""

import torch
from torch import nn

ATOMS, SIZE, PENALTY = 24, 16, 0.1


class Dictionary(nn.Module):
    def __init__(self):
        super().__init__()
        self.atoms = nn.Parameter(nn.functional.normalize(torch.randn(ATOMS, SIZE), dim=1))

    def forward(self, codes):
        return codes @ self.atoms

    @torch.no_grad()
    def codes(self, patches, rounds=25):
        """Iterated shrinkage: sparse codes under the present atoms."""
        length = torch.linalg.matrix_norm(self.atoms @ self.atoms.t(), ord=2)
        codes = torch.zeros(len(patches), ATOMS)
        for _ in range(rounds):
            codes = codes - (codes @ self.atoms - patches) @ self.atoms.t() / length
            codes = nn.functional.softshrink(codes, float(PENALTY / length))
        return codes

    @torch.no_grad()
    def to_length(self):
        self.atoms.div_(self.atoms.norm(dim=1, keepdim=True).clamp(min=1.0))


def patches(count, seed):
    truth = nn.functional.normalize(torch.randn(ATOMS, SIZE, generator=torch.Generator().manual_seed(7)), dim=1)
    g = torch.Generator().manual_seed(seed)
    active = torch.rand(count, ATOMS, generator=g) < 0.12
    return (active * torch.randn(count, ATOMS, generator=g)) @ truth + 0.02 * torch.randn(count, SIZE, generator=g)


torch.manual_seed(71)
train, held = patches(800, seed=1), patches(200, seed=2)
model = Dictionary()
optimizer = torch.optim.SGD(model.parameters(), lr=4.0, momentum=0.5)
for epoch in range(6):
    for part in torch.randperm(len(train)).split(40):
        codes = model.codes(train[part])
        loss = nn.functional.mse_loss(model(codes), train[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.to_length()
    codes = model.codes(held)
    with torch.no_grad():
        left = nn.functional.mse_loss(model(codes), held).item()
    print(f"{epoch}: loss {loss.item():.4f}, held out {left:.4f}, used {(codes != 0).float().mean().item():.2f}")
