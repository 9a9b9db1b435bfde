"""Watching keeps no tensor of a loop alive: its memory is the same to the byte, also after operations in place."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import surefoot
from surefoot.meters import allocator
from surefoot.watch import watch_call

needs_compiler = pytest.mark.skipif(not allocator.available(), reason="no C++ compiler")
PLENTY = 1 << 40
"""A limit that nothing reaches. With one, what surefoot allocates for itself is not counted."""

Operation = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def fresh(x: torch.Tensor) -> torch.Tensor:
    """A tensor that autograd does not save, whatever is written into it."""
    return x.detach().clone()


def set_item(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    h[:, 0] = 0.0
    return h


def set_item_of_view(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    h.view(-1)[:7] = x.view(-1)[:7]
    return h


def into_out(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    made = torch.empty_like(x, requires_grad=False)
    torch.mul(x.detach(), 0.5, out=made)
    return h + made


def foreach(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    made = fresh(x)
    torch._foreach_mul_([made], 0.5)
    return h + made


OPERATIONS: dict[str, Operation] = {
    "none": lambda h, x: h + x,
    "+=": lambda h, x: h.__iadd__(x),
    "add_": lambda h, x: h.add_(x),
    "sub_": lambda h, x: h.sub_(x, alpha=0.1),
    "mul_": lambda h, x: h.mul_(x.detach()),
    "addcmul_": lambda h, x: h.addcmul_(x.detach(), x.detach(), value=0.1),
    "masked_fill_": lambda h, x: h.masked_fill_(x.detach() > 1, 0.0),
    "index_add_": lambda h, x: h.index_add_(0, torch.arange(len(x)), x),
    "copy_": lambda h, x: h + torch.empty_like(x, requires_grad=False).copy_(x.detach()),
    "relu_": lambda h, x: h + F.relu_(fresh(x)),
    "relu inplace": lambda h, x: h + F.relu(fresh(x), inplace=True),
    "dropout inplace": lambda h, x: h + F.dropout(fresh(x), 0.5, inplace=True),
    "clamp_": lambda h, x: h + fresh(x).clamp_(-1, 1),
    "setitem": set_item,
    "setitem of a view": set_item_of_view,
    "out=": into_out,
    "mask": lambda h, x: torch.softmax(h * (x.detach() > 0).float(), -1),
    "foreach": foreach,
}


class Block(nn.Module):
    """No backward needs what is written: without a watch it is freed as soon as `sigmoid` has run."""

    def __init__(self, operate: Operation, width: int, look: Callable[[], None]) -> None:
        super().__init__()
        self.layer, self.operate, self.look = nn.Linear(width, width), operate, look

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.look()
        return torch.sigmoid(self.operate(self.layer(x), x))


class Loop:
    """Trains and evaluates blocks on batches much larger than all parameters. It looks all along each step."""

    def __init__(self, *names: str, look: Callable[[], None] = lambda: None) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(Block(OPERATIONS[name], 32, look) for name in names))
        self.optimizer, self.look = torch.optim.SGD(self.model.parameters(), lr=0.01), look

    def step(self) -> None:
        batch = torch.randn(1024, 32)
        loss = self.model(batch).repeat(4, 1).mean()  # the peak: in backward, torch adds out of place while watched
        self.look()
        loss.backward()
        del batch, loss
        self.look()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.look()
        with torch.no_grad():
            self.model(torch.randn(1024, 32))
        self.look()


@contextmanager
def counting() -> Iterator[None]:
    """Counts allocations. Garbage of earlier tests is not freed meanwhile."""
    gc.collect()
    gc.disable()
    allocator.install()
    try:
        yield
    finally:
        allocator.uninstall()
        gc.enable()


class Allocated(NamedTuple):
    """The bytes of the tensors of a loop: those that are live at each look, and the most of each step."""

    live: tuple[int, ...]
    peaks: tuple[int, ...]


def allocated(names: list[str], *, watched: bool) -> Allocated:
    """What the tensors of the loop really took."""
    live, peaks, found = list[int](), list[int](), list[Allocated]()

    def run() -> None:
        before = allocator.live_bytes()
        loop = Loop(*names, look=lambda: live.append(allocator.live_bytes() - before))
        for _ in range(3):
            allocator.reset_peak()
            loop.step()
            peaks.append(allocator.peak_bytes() - before)
        found.append(Allocated(tuple(live), tuple(peaks)))  # here, because checks call the model again later

    with counting():
        if watched:
            watch_call(run, name=__file__, memory_limit=PLENTY)
        else:
            run()
    return found[0]


def booked_peaks(names: list[str]) -> tuple[int, ...]:
    """The peaks that a watch books on tensors without memory."""
    with surefoot.fake_world("1xh100-sxm"):
        loop = Loop(*names)
        with surefoot.watch(loop.model, loop.optimizer) as seen:
            for _ in range(2):
                loop.step()
    return tuple(each.peak.peak_bytes for each in seen.steps)


@pytest.mark.sweep
@needs_compiler
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_watched_loop_takes_the_memory_of_the_bare_loop(name: str):
    bare = allocated([name] * 4, watched=False)
    assert allocated([name] * 4, watched=True) == bare
    assert booked_peaks([name] * 4) == bare.peaks[:2]


@needs_compiler
@settings(max_examples=5)
@given(st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=6))
def test_so_does_a_loop_of_any_operations_in_any_order(names: list[str]):
    bare = allocated(names, watched=False)
    assert allocated(names, watched=True) == bare
    assert booked_peaks(names) == bare.peaks[:2]


@needs_compiler
def test_a_tensor_that_is_kept_is_seen(monkeypatch: pytest.MonkeyPatch):
    """Else the tests above would prove nothing."""
    kept: list[torch.Tensor] = []

    def keep(h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        kept.append(h.detach())
        return h.add_(x)

    monkeypatch.setitem(OPERATIONS, "keep", keep)
    assert allocated(["keep"], watched=False).live > allocated(["add_"], watched=False).live
