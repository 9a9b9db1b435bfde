import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from surefoot.integrations.accelerate import SurefootTracker

set_seed(0)
scores = torch.randn(1000, 4)
reviews = TensorDataset(scores, (scores.sum(dim=1) > 0).long())
model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

accelerator = Accelerator(cpu=True, log_with=SurefootTracker("runs/accelerate"))
accelerator.init_trackers("reviews", config={"lr": 1e-2})
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.AdamW(model.parameters(), lr=1e-2), DataLoader(reviews, batch_size=64, shuffle=True)
)
for epoch in range(2):
    for features, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features), labels)
        accelerator.backward(loss)
        optimizer.step()
    accelerator.log({"loss": loss.item()}, step=epoch)
accelerator.end_training()
