"""Trains a physics-informed network on the heat equation (double backward), with Adam first and L-BFGS after.

Needs numpy.
"""

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(1234)
np.random.seed(1234)
torch.set_default_dtype(torch.float64)
device = "cuda" if torch.cuda.is_available() else "cpu"
ALPHA = 0.4


class PINN(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(i, o) for i, o in zip(layers[:-1], layers[1:])])  # noqa: B905, RUF007
        for m in self.linears:
            nn.init.xavier_normal_(m.weight.data, gain=1.0)
            nn.init.zeros_(m.bias.data)
        self.activation = nn.Tanh()

    def forward(self, x, t):
        a = torch.cat([x, t], dim=1)
        for m in self.linears[:-1]:
            a = self.activation(m(a))
        return self.linears[-1](a)


def lhs(n, low, high):
    cells = (np.random.permutation(n) + np.random.rand(n)) / n
    return low + (high - low) * cells[:, None]


n_f, n_b, n_i = 2000, 100, 200
x_f = torch.tensor(lhs(n_f, 0, 1), requires_grad=True, device=device)
t_f = torch.tensor(lhs(n_f, 0, 1), requires_grad=True, device=device)
t_b = torch.tensor(lhs(n_b, 0, 1), device=device)
x_i = torch.tensor(lhs(n_i, 0, 1), device=device)
u_i = torch.sin(np.pi * x_i)

net = PINN([2, 50, 50, 50, 50, 1]).to(device)


def residual():
    u = net(x_f, t_f)
    u_t = torch.autograd.grad(u, t_f, torch.ones_like(u), retain_graph=True, create_graph=True)[0]
    u_x = torch.autograd.grad(u, x_f, torch.ones_like(u), retain_graph=True, create_graph=True)[0]
    u_xx = torch.autograd.grad(u_x, x_f, torch.ones_like(u_x), retain_graph=True, create_graph=True)[0]
    return u_t - ALPHA * u_xx


def total_loss():
    zero, one = torch.zeros_like(t_b), torch.ones_like(t_b)
    loss_b = net(zero, t_b).pow(2).mean() + net(one, t_b).pow(2).mean()
    loss_i = (net(x_i, torch.zeros_like(x_i)) - u_i).pow(2).mean()
    loss_f = residual().pow(2).mean()
    return loss_f + 10 * loss_b + 10 * loss_i


adam = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(6):
    adam.zero_grad()
    loss = total_loss()
    loss.backward()
    adam.step()
    print("Adam %d loss %.5e" % (epoch, loss.item()))  # noqa: UP031

lbfgs = torch.optim.LBFGS(
    net.parameters(), lr=1.0, max_iter=3, max_eval=6, history_size=10, line_search_fn="strong_wolfe"
)
calls = 0


def closure():
    global calls
    lbfgs.zero_grad()
    loss = total_loss()
    loss.backward()
    calls += 1
    if calls % 2 == 0:
        print("L-BFGS call %d loss %.5e" % (calls, loss.item()))  # noqa: UP031
    return loss


for _ in range(2):
    lbfgs.step(closure)

with torch.no_grad():
    x = torch.linspace(0, 1, 50, device=device).reshape(-1, 1)
    t = torch.full_like(x, 0.5)
    exact = torch.exp(-ALPHA * np.pi**2 * t) * torch.sin(np.pi * x)
    error = torch.norm(net(x, t) - exact) / torch.norm(exact)
print(f"relative error at t=0.5: {error:.3e}")
