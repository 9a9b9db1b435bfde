"""Twins of the checks on how a model is built and what it saves."""

import math

import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from tests.checks.twins import Module, X, Y, mlp, numbers, plain, sgd, twin, whole
from tests.checks.twins.losses import TEXT, Tokens, per_token


class Listed(nn.Module):
    def __init__(self, container=list):
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Linear(4, 4) for _ in range(2)]
        self.layers = {"a": layers[0], "b": layers[1]} if container is dict else container(layers)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for layer in self.layers.values() if isinstance(self.layers, dict) else self.layers:
            x = layer(x).relu()
        return self.head(x)


@twin("layers-in-plain-list")
def _(buggy):
    return plain(Listed(list if buggy else nn.ModuleList))


@twin("unregistered-parameter")
def _(buggy):
    scale = torch.ones(4, requires_grad=True) if buggy else nn.Parameter(torch.ones(4))
    return plain(Module(lambda self, x: self.end(x * self.scale), scale=scale, end=lambda: nn.Linear(4, 2)))


@twin("state-lost-on-reload")
def _(buggy):
    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return self.end(x - self.mean)

    model = Module(forward, end=lambda: nn.Linear(4, 2))
    if buggy:
        model.mean = torch.zeros(4)
    else:
        model.register_buffer("mean", torch.zeros(4))
    return plain(model)


@twin("unregistered-buffer")
def _(buggy):
    model = Module(lambda self, x: self.end(x * self.mask), end=lambda: nn.Linear(4, 2))
    if buggy:
        model.mask = torch.ones(4)
    else:
        model.register_buffer("mask", torch.ones(4))
    return plain(model)


@twin("padding-in-attention")
def _(buggy):
    mask = torch.ones(4, 12, dtype=torch.long)
    for row, length in enumerate((4, 6, 9, 12)):
        mask[row, length:] = 0
    model = Tokens(torch.ones_like)
    optimizer = sgd(model)
    keep = model.forward
    if buggy:
        model.forward = lambda tokens, attention_mask: keep(tokens)
        model = Module(lambda self, tokens, attention_mask: self.inner(tokens), inner=lambda: Tokens(torch.ones_like))
        optimizer = sgd(model)
    targets = whole(32, 4)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            h = model(TEXT[:, :12], attention_mask=mask)
            F.cross_entropy(h.mean(1), targets).backward()
            optimizer.step()
    return seen.findings


@twin("attention-across-documents")
def _(buggy):
    class Packed(Tokens):
        def forward(self, tokens, position_ids):
            documents = (position_ids == 0).cumsum(1)
            same = documents[:, :, None] == documents[:, None, :]
            query, key, value = self.mix(self.embed(tokens)).chunk(3, -1)
            scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
            allowed = torch.ones_like(scores).tril().bool() & (same | buggy)
            return self.head(scores.masked_fill(~allowed, -1e9).softmax(-1) @ value + value)

    positions = torch.cat([torch.arange(5), torch.arange(7)]).expand(4, -1)
    model = Packed()
    optimizer = sgd(model)
    with surefoot.watch(model, optimizer) as seen:
        for _ in range(3):
            optimizer.zero_grad()
            per_token(model(TEXT[:, :12], positions), TEXT[:, 1:13]).backward()
            optimizer.step()
    return seen.findings


@twin("samples-mixed-in-batch")
def _(buggy):
    model = Module(lambda self, x: self.end(self.lstm(x)[0][:, -1]),
                   lstm=lambda: nn.LSTM(4, 8, batch_first=not buggy), end=lambda: nn.Linear(8, 2))  # fmt: skip
    return plain(model, x=numbers(8, 5, 4))


@twin("view-in-place-of-transpose")
def _(buggy):
    def forward(self, x):
        maps = self.maps(x)
        tokens = maps.view(len(x), 9, 6) if buggy else maps.flatten(2).transpose(1, 2)
        return self.end(self.mix(tokens).relu().mean(1))

    layers = {"maps": lambda: nn.Conv2d(3, 6, 3), "mix": lambda: nn.Linear(6, 6), "end": lambda: nn.Linear(6, 2)}
    return plain(Module(forward, **layers), x=numbers(8, 3, 5, 5))


class Swish(torch.autograd.Function):
    """x times its sigmoid."""

    wrong = False

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return gradient * (s if Swish.wrong else s * (1 + x * (1 - s)))


@twin("wrong-custom-backward")
def _(buggy):
    Swish.wrong = buggy
    model = Module(lambda self, x: self.end(Swish.apply(self.body(x))),
                   body=lambda: nn.Linear(4, 8), end=lambda: nn.Linear(8, 2))  # fmt: skip
    return plain(model)


@twin("input-ignored")
def _(buggy):
    return plain(Module(lambda self, x: self.body(torch.zeros_like(x) if buggy else x), body=mlp))


@twin("repeated-layer-object")
def _(buggy):
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4)] * 3 if buggy else [nn.Linear(4, 4) for _ in range(3)]
    stack = nn.Sequential(*(each for layer in layers for each in (layer, nn.ReLU())))
    return plain(nn.Sequential(stack, nn.Linear(4, 2)))


@twin("dropout-in-evaluation")
def _(buggy):
    def forward(self, x):
        return self.end(F.dropout(x, 0.5, training=True if buggy else self.training))

    return plain(Module(forward, end=lambda: nn.Linear(4, 2)))


@twin("input-changed-in-place")
def _(buggy):
    def forward(self, x):
        return self.end(x.add_(0.01) if buggy else x + 0.01)

    return plain(Module(forward, end=lambda: nn.Linear(4, 2)), x=X.clone())


@twin("untied-weights")
def _(buggy):
    model = Tokens()
    if buggy:
        model.head.weight.data = model.embed.weight.data.clone()
    else:
        nn.init.normal_(model.embed.weight, std=0.02)
        model.head.weight = model.embed.weight
    return plain(model, x=TEXT[:, :-1], y=TEXT[:, 1:], loss=per_token)


@twin("batch-norm-of-few-samples")
def _(buggy):
    few = 2 if buggy else 8
    return plain(mlp(nn.BatchNorm1d(8)), x=X[:few], y=Y[:few])


@twin("running-frozen-batch-norm")
def _(buggy):
    model = mlp(nn.BatchNorm1d(8))
    model[2].requires_grad_(False)
    model[2].train(buggy)
    return plain(model)


@twin("few-matching-weights")
def _(buggy):
    model = mlp()
    with surefoot.watch(model) as seen:
        prefix = "module." if buggy else ""
        state = {prefix + name: each.clone() for name, each in model.state_dict().items()}
        model.load_state_dict(state, strict=False)
    return seen.findings


@twin("best-weights-by-reference")
def _(buggy):
    model, best = mlp(), []

    def keep(step):
        if step == 1:
            state = model.state_dict()
            best.append(state if buggy else {name: each.clone() for name, each in state.items()})

    found = plain(model, after=keep)
    assert best
    return found


def saving(tmp: str, saved):
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())

    def save(step):
        if step == 2:
            torch.save(saved(model, optimizer), tmp)

    return plain(model, optimizer=optimizer, after=save)


@twin("pickled-module")
def _(buggy):
    import io

    return saving(io.BytesIO(), lambda model, _: model if buggy else model.state_dict())


@twin("checkpoint-without-optimizer")
def _(buggy):
    import io

    def saved(model, optimizer):
        state = {"epoch": 3, "model": model.state_dict()}
        return state if buggy else {**state, "optimizer": optimizer.state_dict()}

    return saving(io.BytesIO(), saved)


def resumed(*, optimizer_back: bool, scheduler_back: bool):
    import io

    from torch.optim.lr_scheduler import StepLR

    model, file = mlp(), io.BytesIO()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = StepLR(optimizer, 2, 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        scheduler.step()
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file
    )
    file.seek(0)
    with surefoot.watch() as seen:
        state = torch.load(file, weights_only=True)
        model = mlp()
        model.load_state_dict(state["model"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        if optimizer_back:
            optimizer.load_state_dict(state["optimizer"])
        scheduler = StepLR(optimizer, 2, 0.1)
        if scheduler_back:
            scheduler.load_state_dict(state["scheduler"])
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
            scheduler.step()
    return seen.findings


@twin("unrestored-optimizer")
def _(buggy):
    return resumed(optimizer_back=not buggy, scheduler_back=True)


@twin("unrestored-scheduler")
def _(buggy):
    return resumed(optimizer_back=True, scheduler_back=not buggy)


@twin("linear-layers-in-a-row")
def _(buggy):
    between = [] if buggy else [nn.ReLU()]
    return plain(nn.Sequential(nn.Linear(4, 8), *between, nn.Linear(8, 2)))
