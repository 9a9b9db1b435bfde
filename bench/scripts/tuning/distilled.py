"""Distillation: a fixed teacher, a student, an optimizer for each half of the student, gradients that accumulate."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __len__(self) -> int:
        return 512

    def __getitem__(self, index):
        return torch.sin(torch.linspace(0, index / 10, 256)), index % 20


def network(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 20))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
teacher, student = network(1024).to(device).eval().requires_grad_(False), network(256).to(device)
optimizers = [torch.optim.SGD(student[:2].parameters(), 0.1), torch.optim.AdamW(student[2:].parameters(), 1e-3)]
for index, (x, y) in enumerate(DataLoader(Waves(), batch_size=64, shuffle=True)):
    x, y = x.to(device), y.to(device)
    with torch.no_grad():
        wanted = F.softmax(teacher(x) / 4, dim=-1)
    scores = student(x)
    soft = F.kl_div(F.log_softmax(scores / 4, dim=-1), wanted, reduction="batchmean") * 16
    loss = 0.7 * soft + 0.3 * F.cross_entropy(scores, y)
    (loss / 2).backward()
    if index % 2:
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        print(index, loss.item())
