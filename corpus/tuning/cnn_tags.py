"""Several tags for a picture at once: a CNN with batch norm, BCEWithLogitsLoss and a OneCycle schedule."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)
TAGS = 6


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(block(3, 8), block(8, 16))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(16, TAGS)

    def forward(self, images):
        h = self.features(images)
        h = self.pool(h).flatten(1)
        return self.head(self.dropout(h))


def pictures(n, seed):
    generator = torch.Generator().manual_seed(seed)
    tags = (torch.rand(n, TAGS, generator=generator) < 0.4).float()
    patterns = torch.randn(TAGS, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    images = torch.einsum("nt,tchw->nchw", tags, patterns) + 0.3 * torch.randn(n, 3, 16, 16, generator=generator)
    return TensorDataset(images, tags)


train_loader = DataLoader(pictures(160, 1), batch_size=20, shuffle=True)
val_loader = DataLoader(pictures(40, 2), batch_size=20)

net = Tagger()
criterion = nn.BCEWithLogitsLoss()
opt = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
EPOCHS = 3
sched = optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=EPOCHS * len(train_loader))

best = 0.0
for epoch in range(EPOCHS):
    net.train()
    for images, tags in train_loader:
        opt.zero_grad(set_to_none=True)
        logits = net(images)
        loss = criterion(logits, tags)
        loss.backward()
        opt.step()
        sched.step()

    net.eval()
    right = count = 0
    with torch.no_grad():
        for images, tags in val_loader:
            scores = torch.sigmoid(net(images))
            right += ((scores > 0.5).float() == tags).sum().item()
            count += tags.numel()
    if right / count > best:
        best = right / count
        torch.save(net.state_dict(), "best_tagger.pt")
    print("epoch", epoch, "accuracy", right / count)
