"""A residual CNN in a plain loop: workers, channels_last, bf16 autocast, label smoothing, an evaluation at the end."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Residual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.skip = nn.Identity() if stride == 1 and channels == out else nn.Conv2d(channels, out, 1, stride)

    def forward(self, x):
        return torch.relu_(self.path(x) + self.skip(x))


def main() -> None:
    torch.manual_seed(3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = nn.Conv2d(3, 24, 3, 1, 1), Residual(24, 24), Residual(24, 48, 2), Residual(48, 96, 2)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(96, 10))
    model = model.to(device, memory_format=torch.channels_last)
    data = TensorDataset(torch.randn(160, 3, 48, 48), torch.randint(0, 10, (160,)))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, pin_memory=True, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=len(loader))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)
    right = seen = 0
    for images, labels in loader:
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            scores = model(images)
            loss = criterion(scores, labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        right += (scores.argmax(1) == labels).sum().item()
        seen += len(labels)
        print(f"{loss.item():.3f} {right / seen:.3f} {schedule.get_last_lr()[0]:.4f}")
    model.eval()
    with torch.no_grad():
        print(model(images.float()).softmax(-1).cpu().numpy().shape)


if __name__ == "__main__":
    main()
