"""The shape of a reference script for image classification: warm-up, smoothing, mixup or cutmix, averaged weights."""

import argparse
import random
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler, default_collate

CLASSES, SIDE = 5, 16


class Shapes(Dataset):
    """Stripes of five directions and widths with noise; already scaled to zero mean and unit deviation."""

    def __init__(self, count, seed, train):
        g = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(CLASSES, (count,), generator=g)
        y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
        waves = torch.stack([x / 2, y / 2, (x + y) / 3, (x - y) / 3, x * 1.2]).float()
        phase = 6.28 * torch.rand(count, 1, 1, generator=g)
        self.images = torch.sin(waves[self.targets] + phase) + 0.7 * torch.randn(count, SIDE, SIDE, generator=g)
        self.train = train

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        image = self.images[i].unsqueeze(0)
        if self.train:
            image = image.roll(int(torch.randint(SIDE, (1,))), dims=-1)
            if random.random() < 0.25:
                top, left = random.randrange(SIDE - 4), random.randrange(SIDE - 4)
                image[..., top : top + 4, left : left + 4] = 0.0  # of the rolled copy
        return image, self.targets[i]


class MixupOrCutmix:
    def __init__(self, classes, alpha=0.3):
        self.classes, self.beta = classes, torch.distributions.Beta(alpha, alpha)

    def __call__(self, images, targets):
        targets = F.one_hot(targets, self.classes).float()
        lam = float(self.beta.sample())
        rolled, other = images.roll(1, 0), targets.roll(1, 0)
        if random.random() < 0.5:
            images = lam * images + (1 - lam) * rolled
        else:
            side = int(SIDE * (1 - lam) ** 0.5)
            top, left = random.randint(0, SIDE - side), random.randint(0, SIDE - side)
            images = images.clone()
            images[..., top : top + side, left : left + side] = rolled[..., top : top + side, left : left + side]
            lam = 1 - side * side / (SIDE * SIDE)
        return images, lam * targets + (1 - lam) * other


class SmoothedValue:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.total, self.count = self.total + value * n, self.count + n

    @property
    def average(self):
        return self.total / max(1, self.count)


class ExponentialMovingAverage(torch.optim.swa_utils.AveragedModel):
    def __init__(self, model, decay):
        super().__init__(model, avg_fn=lambda average, now, n: decay * average + (1 - decay) * now, use_buffers=True)


def train_one_epoch(model, criterion, optimizer, loader, epoch, args, model_ema, scaler=None):
    model.train()
    meters = {"loss": SmoothedValue(), "acc1": SmoothedValue()}
    started = time.time()
    for i, (image, target) in enumerate(loader):
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        if args.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
        optimizer.step()
        if i % args.model_ema_steps == 0:
            model_ema.update_parameters(model)
            if epoch < args.lr_warmup_epochs:
                model_ema.n_averaged.fill_(0)  # the average begins anew until warm-up is over
        acc1 = (output.argmax(1) == target.argmax(1)).float().mean().item()
        meters["loss"].update(loss.item(), len(image))
        meters["acc1"].update(acc1, len(image))
    rate = optimizer.param_groups[0]["lr"]
    print(f"epoch {epoch} lr {rate:.4f} loss {meters['loss'].average:.4f} took {time.time() - started:.1f}")


def evaluate(model, criterion, loader, log_suffix=""):
    model.eval()
    meters = {"loss": SmoothedValue(), "acc1": SmoothedValue()}
    with torch.inference_mode():
        for image, target in loader:
            output = model(image)
            meters["loss"].update(criterion(output, target).item(), len(image))
            meters["acc1"].update((output.argmax(1) == target).float().mean().item(), len(image))
    print(f"test {log_suffix} loss {meters['loss'].average:.4f} acc@1 {meters['acc1'].average:.3f}")
    return meters["acc1"].average


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", default=5, type=int)
    parser.add_argument("--batch-size", default=32, type=int)
    parser.add_argument("--lr", default=0.1, type=float)
    parser.add_argument("--lr-warmup-epochs", default=1, type=int)
    parser.add_argument("--label-smoothing", default=0.1, type=float)
    parser.add_argument("--model-ema-steps", default=2, type=int)
    parser.add_argument("--clip-grad-norm", default=None, type=float)
    parser.add_argument("--weight-decay", default=1e-4, type=float)
    return parser.parse_args()


def main(args):
    random.seed(0)
    torch.manual_seed(0)
    dataset, dataset_test = Shapes(320, seed=1, train=True), Shapes(100, seed=2, train=False)
    mix = MixupOrCutmix(CLASSES)
    data_loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=RandomSampler(dataset),
        collate_fn=lambda batch: mix(*default_collate(batch)),
    )
    data_loader_test = DataLoader(dataset_test, batch_size=40, sampler=SequentialSampler(dataset_test))
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, CLASSES),
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
    norms = [p for m in model.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()]
    others = [p for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear)) for p in m.parameters()]
    groups = [{"params": norms, "weight_decay": 0.0}, {"params": others, "weight_decay": args.weight_decay}]
    optimizer = torch.optim.SGD(groups, lr=args.lr, momentum=0.9, nesterov=True)
    main_lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs - args.lr_warmup_epochs)
    warmup_lr_scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 0.1, total_iters=args.lr_warmup_epochs)
    lr_scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer, schedulers=[warmup_lr_scheduler, main_lr_scheduler], milestones=[args.lr_warmup_epochs]
    )
    model_ema = ExponentialMovingAverage(model, decay=0.8)
    for epoch in range(args.epochs):
        train_one_epoch(model, criterion, optimizer, data_loader, epoch, args, model_ema)
        lr_scheduler.step()
        evaluate(model, criterion, data_loader_test)
        evaluate(model_ema, criterion, data_loader_test, log_suffix="EMA")
        checkpoint = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "lr_scheduler": lr_scheduler.state_dict(),
            "model_ema": model_ema.state_dict(),
            "epoch": epoch,
        }
        torch.save(checkpoint, "checkpoint.pth")


if __name__ == "__main__":
    main(get_args())
