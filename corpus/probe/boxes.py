"""One box in each picture: lists of pictures and of dicts of targets, random flips, smooth L1 and IoU."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(3)
SIDE = 24


def scenes(count):
    corner, size = torch.randint(1, 11, (count, 2)), torch.randint(5, 12, (count, 2))
    pictures, boxes, kinds = 0.2 * torch.randn(count, 1, SIDE, SIDE), [], torch.randint(0, 2, (count,))
    for picture, (x, y), (w, h), kind in zip(pictures, corner.tolist(), size.tolist(), kinds.tolist()):
        picture[0, y : y + h, x : x + w] += 1.0
        if kind:
            picture[0, y : y + h : 2, x : x + w] -= 1.0
        boxes.append([x, y, x + w, y + h])
    return pictures, torch.tensor(boxes).float() / SIDE, kinds


class Scenes(Dataset):
    def __init__(self, count, flips):
        self.pictures, self.boxes, self.kinds = scenes(count)
        self.flips = flips

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, place):
        picture, box = self.pictures[place], self.boxes[place].clone()
        if self.flips and torch.rand(1).item() < 0.5:
            picture = picture.flip(-1)
            box = torch.stack([1 - box[2], box[1], 1 - box[0], box[3]])
        return picture, {"boxes": box[None], "labels": self.kinds[place][None]}


def collate(items):
    return tuple(zip(*items))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(576, 64),
            nn.ReLU(),
        )
        self.box, self.kind = nn.Linear(64, 4), nn.Linear(64, 2)

    def forward(self, pictures):
        seen = self.body(torch.stack(list(pictures)))
        return self.box(seen).sigmoid(), self.kind(seen)


def overlap(a, b):
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    both = (high - low).clamp(min=0).prod(1)
    area = [(each[:, 2:] - each[:, :2]).clamp(min=0).prod(1) for each in (a, b)]
    return both / (area[0] + area[1] - both).clamp(min=1e-6)


def together(targets, name):
    return torch.cat([each[name] for each in targets])


def main():
    train = DataLoader(Scenes(1200, True), batch_size=48, shuffle=True, collate_fn=collate)
    valid = DataLoader(Scenes(240, False), batch_size=60, collate_fn=collate)
    net = Detector()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(12):
        net.train()
        for pictures, targets in train:
            boxes, kinds = net(pictures)
            near = nn.functional.smooth_l1_loss(boxes, together(targets, "boxes"), beta=0.1)
            loss = 5 * near + 0.2 * nn.functional.cross_entropy(kinds, together(targets, "labels"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        overlaps, right = [], 0
        with torch.no_grad():
            for pictures, targets in valid:
                boxes, kinds = net(pictures)
                overlaps.append(overlap(boxes, together(targets, "boxes")))
                right += (kinds.argmax(1) == together(targets, "labels")).sum().item()
        print(f"epoch {epoch:2d}  loss {loss.item():.4f}  IoU {torch.cat(overlaps).mean():.4f}  accuracy {right / 240:.4f}")


if __name__ == "__main__":
    main()
