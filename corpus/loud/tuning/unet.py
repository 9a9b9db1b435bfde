import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, 16, 16, generator=generator)
        mask = (image.mean(0) > 0.5).long()
        return image, mask


class Block(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, padding=1)
        self.norm = nn.BatchNorm2d(outside)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class UNet(nn.Module):
    def __init__(self, width=8, classes=2):
        super().__init__()
        self.down = Block(3, width)
        self.deep = Block(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join = Block(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.deep(F.max_pool2d(a, 2))
        c = self.up(b)
        d = self.join(torch.cat([a, c], dim=1))
        return self.head(d)


torch.manual_seed(0)
model = UNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Shapes(), batch_size=4)
for images, masks in loader:
    logits = model(images)
    loss = F.cross_entropy(logits, masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
