"""A committee of eight regressors trained at once: stacked weights, vmap over grad, Adam on the stacks, bagging."""

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

MEMBERS = 8


def make_member():
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


def surface(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 2, generator=g) * 4 - 2
    y = torch.sin(1.5 * x[:, :1]) + 0.5 * x[:, 1:] ** 2 - 0.8
    return x, y + 0.1 * torch.randn(n, 1, generator=g)


def train(steps=240, batch=40, lr=0.02):
    torch.manual_seed(23)
    x, y = surface(300, seed=1)
    x_val, y_val = surface(200, seed=2)

    members = [make_member() for _ in range(MEMBERS)]
    params, buffers = stack_module_state(members)
    skeleton = make_member().to("meta")
    # each member has a bootstrap sample of the rows as its own data
    bags = torch.randint(0, len(x), (MEMBERS, len(x)))

    def loss_of_one(p, b, inputs, targets):
        out = functional_call(skeleton, (p, b), (inputs,))
        return nn.functional.mse_loss(out, targets)

    gradients = vmap(grad_and_value(loss_of_one), in_dims=(0, 0, 0, 0))
    predict = vmap(lambda p, b, inputs: functional_call(skeleton, (p, b), (inputs,)), in_dims=(0, 0, None))

    optimizer = torch.optim.Adam(params.values(), lr=lr)
    for step in range(steps):
        pick = torch.randint(0, bags.shape[1], (MEMBERS, batch))
        rows = bags.gather(1, pick)
        grads, losses = gradients(params, buffers, x[rows], y[rows])
        for name, p in params.items():
            p.grad = grads[name]
        optimizer.step()
        if step == steps // 2:
            for group in optimizer.param_groups:
                group["lr"] = lr / 4
        if (step + 1) % 60 == 0:
            with torch.no_grad():
                votes = predict(params, buffers, x_val)
            single = (votes - y_val).pow(2).mean(dim=(1, 2))
            together = (votes.mean(dim=0) - y_val).pow(2).mean()
            spread = votes.std(dim=0).mean()
            print(
                f"step {step + 1}: losses {losses.mean():.3f}, members {single.mean():.3f}, "
                f"committee {together:.3f}, spread {spread:.3f}"
            )
    return params, buffers


if __name__ == "__main__":
    train()
