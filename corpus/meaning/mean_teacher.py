"""Mean Teacher on small glyph images: 48 labelled pictures, the rest of the training pool without labels."""
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE = 14
KINDS = 6


def glyph_templates():
    gen = torch.Generator().manual_seed(77)
    coarse = torch.randn(KINDS, 1, 5, 5, generator=gen)
    return F.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear", align_corners=False).squeeze(1)


def draw_glyphs(per_kind, seed):
    """Pictures sorted by kind, as the scanner delivers them."""
    gen = torch.Generator().manual_seed(seed)
    kinds = torch.arange(KINDS).repeat_interleave(per_kind)
    images = glyph_templates()[kinds]
    shifts = torch.randint(-2, 3, (len(kinds), 2), generator=gen)
    images = torch.stack([im.roll((int(a), int(b)), (0, 1)) for im, (a, b) in zip(images, shifts)])
    contrast = 0.6 + 0.8 * torch.rand(len(kinds), 1, 1, generator=gen)
    images = contrast * images + 0.9 * torch.randn(images.shape, generator=gen)
    return images.unsqueeze(1), kinds


def augment(images):
    """A random shift per picture and pixel noise; called once for every view."""
    pad = F.pad(images, (1, 1, 1, 1), mode="reflect")
    rows, cols = torch.randint(0, 3, (2, len(images))).tolist()
    crops = [im[:, r : r + SIDE, c : c + SIDE] for im, r, c in zip(pad, rows, cols)]
    return torch.stack(crops) + 0.25 * torch.randn_like(images)


class GlyphNet(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.LeakyReLU(0.1),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.LeakyReLU(0.1),
            nn.AdaptiveAvgPool2d(3),
        )
        self.classify = nn.Linear(18 * channels, KINDS)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


class MeanTeacher:
    def __init__(self, opts):
        self.opts = opts
        self.student = GlyphNet()
        self.teacher = copy.deepcopy(self.student)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=opts.lr, momentum=0.9, nesterov=True)

    def consistency_weight(self, step):
        progress = min(1.0, step / self.opts.rampup)
        return self.opts.consistency * math.exp(-5.0 * (1.0 - progress) ** 2)

    @torch.no_grad()
    def follow(self, step):
        """Move the teacher towards the student; the first updates average over few steps only."""
        decay = min(1 - 1 / (step + 1), self.opts.decay)
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters()):
            slow.lerp_(fast, 1 - decay)
        for slow, fast in zip(self.teacher.buffers(), self.student.buffers()):
            slow.copy_(fast)

    def step(self, step, labelled, labels, unlabelled):
        self.student.train()
        everything = torch.cat([labelled, unlabelled])
        student_logits = self.student(augment(everything))
        with torch.no_grad():
            self.teacher.eval()
            target = F.softmax(self.teacher(augment(everything)), dim=1)
        supervised = F.cross_entropy(student_logits[: len(labelled)], labels)
        consistency = F.mse_loss(F.softmax(student_logits, dim=1), target, reduction="sum") / len(everything)
        loss = supervised + self.consistency_weight(step) * consistency
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.follow(step)
        return supervised.item(), consistency.item()


@torch.no_grad()
def accuracy(net, images, kinds):
    net.eval()
    guesses = torch.cat([net(part).argmax(dim=1) for part in images.split(300)])
    return (guesses == kinds).float().mean().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--steps", type=int, default=140)
    cli.add_argument("--labels", type=int, default=48)
    cli.add_argument("--labelled-batch", type=int, default=16)
    cli.add_argument("--unlabelled-batch", type=int, default=64)
    cli.add_argument("--lr", type=float, default=0.03)
    cli.add_argument("--decay", type=float, default=0.95)
    cli.add_argument("--consistency", type=float, default=4.0)
    cli.add_argument("--rampup", type=int, default=60)
    opts = cli.parse_args()
    torch.manual_seed(2024)

    images, kinds = draw_glyphs(per_kind=250, seed=10)
    test_images, test_kinds = draw_glyphs(per_kind=100, seed=11)
    order = torch.randperm(len(images))
    known, unknown = order[: opts.labels], order[opts.labels :]
    labelled_x, labelled_y = images[known], kinds[known]
    unlabelled_x = images[unknown]
    center, scale = images.mean(), images.std()
    labelled_x, unlabelled_x = (labelled_x - center) / scale, (unlabelled_x - center) / scale
    test_images = (test_images - center) / scale

    trainer = MeanTeacher(opts)
    for step in range(opts.steps):
        pick = torch.randint(0, len(labelled_x), (opts.labelled_batch,))
        extra = torch.randint(0, len(unlabelled_x), (opts.unlabelled_batch,))
        sup, con = trainer.step(step, labelled_x[pick], labelled_y[pick], unlabelled_x[extra])
        if step % 35 == 34:
            print(f"step {step + 1}: supervised {sup:.3f} consistency {con:.4f}")
    for name, net in (("student", trainer.student), ("teacher", trainer.teacher)):
        fit, test = accuracy(net, labelled_x, labelled_y), accuracy(net, test_images, test_kinds)
        print(f"{name}: labelled accuracy {fit:.3f} test accuracy {test:.3f}")


if __name__ == "__main__":
    main()
