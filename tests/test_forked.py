"""Processes that a watched loop forks are not looked at."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.data import DataLoader, Dataset

import surefoot


def modes() -> int:
    """How many modes hear of what torch does."""
    return torch._C._len_torch_function_stack() + len(_get_current_dispatch_mode_stack())


class Asked(Dataset):
    """Each sample says how many modes were on when it was read."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.randn(4), torch.tensor(index % 2), torch.tensor(modes())


def test_workers_of_a_loader_run_as_if_nobody_looked():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer) as seen:
        assert modes() == 2
        for x, y, heard in DataLoader(Asked(), 4, num_workers=1):
            assert not heard.any()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        assert modes() == 2
    assert modes() == 0
    assert [each.check for each in seen.findings.findings] == ["missing-zero-grad"]


def test_a_forked_process_may_leave_the_block_itself():
    ends = 1
    child = 1
    try:
        with surefoot.watch():
            child = os.fork()
            assert modes() == (2 if child else 0)
        ends = modes()
    finally:
        if not child:
            os._exit(ends)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
