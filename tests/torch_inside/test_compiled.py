"""Graphs of torch.compile are counted; packages are tested where they are exported, in test_export_formats.py."""

import torch

from surefoot.torch_inside.compiled import graphs_compiled


def test_graphs_are_counted():
    before = graphs_compiled()
    torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
    assert graphs_compiled() == before + 1
