"""The memory limit: refuses the operation that would exceed it, to the byte, and nothing of surefoot's own."""

import gc
import os

import pytest
import torch
from torch import nn

from surefoot.errors import WorldError
from surefoot.meters import allocator
from surefoot.meters.memory_limit import memory_limit

pytestmark = pytest.mark.skipif(not allocator.available(), reason="no C++ compiler")
CPU = torch.device("cpu")


def live() -> int:
    gc.collect()
    allocator.install()
    return allocator.live_bytes()


def test_what_fits_exactly_is_allowed_and_one_byte_more_is_not():
    base = live()
    with memory_limit(base + 400, CPU):
        held = torch.empty(100)
        with pytest.raises(torch.OutOfMemoryError, match=rf"Tried to allocate 1 bytes; {base + 400} of at most"):
            torch.empty(1, dtype=torch.uint8)
        assert allocator.refusal() == (1, base + 400)
        del held
        torch.empty(1, dtype=torch.uint8)


def test_the_limit_ends_with_its_context_and_none_is_no_limit():
    with pytest.raises(torch.OutOfMemoryError), memory_limit(live() + 400, CPU):
        torch.empty(1000)
    torch.empty(1000)
    with memory_limit(None, CPU):
        torch.empty(1000)


def test_backward_raises_torchs_own_type_at_the_operation():
    layer, x = nn.Linear(64, 64), torch.ones(64, 64)
    loss = layer(x).sum()
    with memory_limit(live() + 1000, CPU), pytest.raises(torch.OutOfMemoryError, match="16384 bytes"):
        loss.backward()


def test_what_surefoot_allocates_aside_is_neither_counted_nor_limited():
    base = live()
    with memory_limit(base + 400, CPU):
        with allocator.aside():
            held = torch.empty(1000)
        assert allocator.live_bytes() == base
        del held
        assert allocator.live_bytes() == base
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_no_limit():
    with memory_limit(live() + 400, CPU):
        child = os.fork()
        if child == 0:
            try:
                torch.empty(1000)
            except torch.OutOfMemoryError:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_a_compiler_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(allocator, "available", lambda: False)
    with pytest.raises(WorldError, match=r"--memory-limit .* install g\+\+ or set CXX"), memory_limit(1, CPU):
        pass
