"""What a real step takes, counted by the allocator."""

import torch

import surefoot
from surefoot.data.batches import batches_of
from surefoot.meters import allocator
from surefoot.step import Step
from surefoot.world.world import World


def counted(recipe: surefoot.Recipe) -> int:
    """The peak of a third, real step."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # some kernels take a buffer for each thread
    allocator.install()
    try:
        world, batches = World(), batches_of(recipe)
        base = allocator.live_bytes()
        step = Step(recipe, world)
        for _ in range(3):
            allocator.reset_peak()
            step(world.take(batches) for _ in range(recipe.micro_batches()))
        return allocator.peak_bytes() - base
    finally:
        allocator.uninstall()
        torch.set_num_threads(threads)
