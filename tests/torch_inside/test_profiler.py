"""The legacy profiler tells the allocations of one call, and whether a profiler is on."""

import torch

from surefoot.torch_inside.profiler import allocations, is_profiling


def test_allocations_are_told_in_order():
    def run() -> None:
        held = torch.empty(1000)
        torch.empty(500)
        del held

    assert list(allocations(run)) == [4000, 2000, -2000, -4000]


def test_a_profiler_that_is_on_is_noticed():
    assert not is_profiling()
    with torch.profiler.profile():
        assert is_profiling()
    assert not is_profiling()
