"""A student learns from a larger teacher, which is in evaluation mode and without gradients; KL and cross-entropy."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(12)


def network(width):
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 4))


teacher, student = network(64), network(16)
teacher.eval()
optimizer = torch.optim.Adam(student.parameters(), lr=5e-3)
temperature = 2.0
student.train()
for _ in range(14):
    x = torch.randn(32, 10)
    y = x[:, :4].argmax(1)
    with torch.no_grad():
        soft = F.softmax(teacher(x) / temperature, dim=-1)
    logits = student(x)
    distilled = F.kl_div(F.log_softmax(logits / temperature, dim=-1), soft, reduction="batchmean")
    loss = F.cross_entropy(logits, y) + temperature**2 * distilled
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
