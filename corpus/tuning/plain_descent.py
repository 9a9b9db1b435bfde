"""Digits on a seven-segment display, by hand: raw tensors, two layers, gradient steps under no_grad, no classes."""

import torch

torch.manual_seed(7)

SEGMENTS = torch.tensor([
    [1, 1, 1, 0, 1, 1, 1], [0, 0, 1, 0, 0, 1, 0], [1, 0, 1, 1, 1, 0, 1], [1, 0, 1, 1, 0, 1, 1],
    [0, 1, 1, 1, 0, 1, 0], [1, 1, 0, 1, 0, 1, 1], [1, 1, 0, 1, 1, 1, 1], [1, 0, 1, 0, 0, 1, 0],
    [1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 1, 1],
]).float()  # fmt: skip

# each segment fails now and then, so the same pattern may occur often, and with different digits
label = torch.randint(0, 10, (800,))
flips = (torch.rand(800, 7) < 0.04).float()
x = (SEGMENTS[label] - flips).abs() * 2 - 1
x_train, y_train, x_test, y_test = x[:640], label[:640], x[640:], label[640:]

w1 = (torch.randn(7, 40) * (2 / 7) ** 0.5).requires_grad_()
b1 = torch.zeros(40, requires_grad=True)
w2 = (torch.randn(40, 10) * (1 / 40) ** 0.5).requires_grad_()
b2 = torch.zeros(10, requires_grad=True)
params = [w1, b1, w2, b2]
momenta = [torch.zeros_like(p) for p in params]
lr, mu = 0.15, 0.8


def forward(x):
    h = (x @ w1 + b1).clamp(min=0)
    return h @ w2 + b2


epoch = 0
while epoch < 8:
    order = torch.randperm(640)
    total = 0.0
    for i in range(0, 640, 32):
        rows = order[i : i + 32]
        scores = forward(x_train[rows])
        logp = scores - scores.logsumexp(dim=1, keepdim=True)
        loss = -logp[torch.arange(len(rows)), y_train[rows]].mean()
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            for p, g, m in zip(params, grads, momenta, strict=True):
                m.mul_(mu).add_(g)
                p -= lr * m
        total += loss.item() * len(rows)
    with torch.no_grad():
        right = (forward(x_test).argmax(1) == y_test).float().mean().item()
    print(f"{epoch} loss {total / 640:.3f} test {right:.3f}")
    if epoch == 4:
        lr *= 0.3
    epoch += 1
