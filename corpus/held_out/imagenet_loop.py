"""The shape of the public ImageNet example on tiny pictures: meters, top-1 and top-2, a rate by steps, a best file."""

import argparse
import random
import shutil

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description="tiny pictures")
parser.add_argument("--epochs", default=4, type=int)
parser.add_argument("--start-epoch", default=0, type=int)
parser.add_argument("-b", "--batch-size", default=32, type=int)
parser.add_argument("--lr", default=0.05, type=float)
parser.add_argument("-p", "--print-freq", default=6, type=int)
parser.add_argument("--resume", default="", type=str)
parser.add_argument("--seed", default=1, type=int)

CLASSES = 6


class TinyPictures(Dataset):
    """Stripes of six directions on 16 x 16 pixels; for training they are cropped and turned upside down at random."""

    def __init__(self, count, seed, train):
        g = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(0, CLASSES, (count,), generator=g)
        angle = self.targets * torch.pi / CLASSES + 0.08 * torch.randn(count, generator=g)
        yy, xx = torch.meshgrid(torch.arange(18.0), torch.arange(18.0), indexing="ij")
        phase = 6.28 * torch.rand(count, generator=g)
        along = angle.cos().view(-1, 1, 1) * xx + angle.sin().view(-1, 1, 1) * yy
        grey = 0.5 + 0.35 * torch.sin(1.2 * along + phase.view(-1, 1, 1))
        noise = 0.1 * torch.randn(count, 3, 18, 18, generator=g)
        self.pictures = ((grey.unsqueeze(1) + noise).clamp(0, 1) * 255).byte()
        self.train = train

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        top, left = (random.randint(0, 2), random.randint(0, 2)) if self.train else (1, 1)
        picture = self.pictures[i, :, top : top + 16, left : left + 16].float() / 255
        if self.train and random.random() < 0.5:
            picture = picture.flip(1, 2)
        return (picture - 0.5) / 0.25, self.targets[i]


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x):
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(out + self.short(x))


class AverageMeter:
    sum, count = 0.0, 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count


@torch.no_grad()
def accuracy(output, target, topk=(1, 2)):
    _, pred = output.topk(max(topk), 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    return [correct[:k].reshape(-1).float().sum(0).item() * 100.0 / target.size(0) for k in topk]


def train(loader, model, criterion, optimizer, epoch, args):
    losses, top1 = AverageMeter(), AverageMeter()
    model.train()
    for i, (images, target) in enumerate(loader):
        output = model(images)
        loss = criterion(output, target)
        losses.update(loss.item(), images.size(0))
        top1.update(accuracy(output, target)[0], images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % args.print_freq == 0:
            print(f"Epoch: [{epoch}][{i + 1}/{len(loader)}] Loss {losses.avg:.4f} Acc@1 {top1.avg:.2f}")


def validate(loader, model, criterion):
    losses, top1, top2 = AverageMeter(), AverageMeter(), AverageMeter()
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            output = model(images)
            acc1, acc2 = accuracy(output, target)
            losses.update(criterion(output, target).item(), images.size(0))
            top1.update(acc1, images.size(0))
            top2.update(acc2, images.size(0))
    print(f" *   Loss {losses.avg:.4f} Acc@1 {top1.avg:.3f} Acc@2 {top2.avg:.3f}")
    return top1.avg


def main():
    args = parser.parse_args([])
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    blocks = [BasicBlock(3, 12, 1), BasicBlock(12, 24, 2)]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, CLASSES))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.1)
    best_acc1 = 0.0
    if args.resume:
        checkpoint = torch.load(args.resume)
        args.start_epoch, best_acc1 = checkpoint["epoch"], checkpoint["best_acc1"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
    train_loader = DataLoader(TinyPictures(480, 1, train=True), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(TinyPictures(150, 2, train=False), batch_size=args.batch_size, shuffle=False)
    for epoch in range(args.start_epoch, args.epochs):
        train(train_loader, model, criterion, optimizer, epoch, args)
        acc1 = validate(val_loader, model, criterion)
        scheduler.step()
        is_best, best_acc1 = acc1 > best_acc1, max(acc1, best_acc1)
        state = {"epoch": epoch + 1, "state_dict": model.state_dict(), "best_acc1": best_acc1}
        state |= {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        torch.save(state, "checkpoint.pth.tar")
        if is_best:
            shutil.copyfile("checkpoint.pth.tar", "model_best.pth.tar")


if __name__ == "__main__":
    main()
