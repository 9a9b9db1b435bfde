"""Faults of bearings from vibration features; what is judged and saved is a slow average of the weights."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, FAULTS, EPOCHS, DECAY = 16, 5, 6, 0.9


def bearings(count: int, seed: int) -> TensorDataset:
    """The energy in sixteen bands; each fault lifts a few of them, in a way that depends on the speed."""
    g = torch.Generator().manual_seed(seed)
    pattern = torch.randn(FAULTS, FEATURES, generator=torch.Generator().manual_seed(0))
    fault = torch.randint(FAULTS, (count,), generator=g)
    speed = 0.5 + torch.rand(count, 1, generator=g)
    x = pattern[fault] * speed + 0.8 * torch.randn(count, FEATURES, generator=g)
    return TensorDataset(x, fault)


def make_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(FEATURES, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, FAULTS)
    )


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, decay: float) -> None:
    """Moves the weights of the slow model a little way; statistics of the batches are copied."""
    for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
        old.mul_(decay).add_(new, alpha=1 - decay)
    for old, new in zip(slow.buffers(), fast.buffers(), strict=True):
        old.copy_(new)


@torch.no_grad()
def judge(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    was_training = model.training
    model.eval()
    loss = right = count = 0.0
    for x, fault in loader:
        logits = model(x)
        loss += F.cross_entropy(logits, fault, reduction="sum").item()
        right += (logits.argmax(dim=1) == fault).sum().item()
        count += len(x)
    model.train(was_training)
    return loss / count, right / count


def main() -> None:
    torch.manual_seed(23)
    train = DataLoader(bearings(480, seed=1), batch_size=32, shuffle=True, drop_last=True)
    test = DataLoader(bearings(200, seed=2), batch_size=64)
    model = make_model()
    slow = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    steps = 0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for x, fault in train:
            loss = F.cross_entropy(model(x), fault)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            follow(slow, model, DECAY)
        fast_loss, fast_right = judge(model, test)
        slow_loss, slow_right = judge(slow, test)
        print(f"epoch {epoch} fast {fast_loss:.3f} {fast_right:.1%} slow {slow_loss:.3f} {slow_right:.1%}")
    torch.save({"slow": slow.state_dict(), "fast": model.state_dict(), "optimizer": optimizer.state_dict()}, "slow.pt")


if __name__ == "__main__":
    main()
