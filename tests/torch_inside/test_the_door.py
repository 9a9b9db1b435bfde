"""Private parts of torch stay in one package, and nothing else replaces a function of torch."""

from pathlib import Path

import pytest

import surefoot
from tests.torch_inside.private_names import all_uses, private_uses

PACKAGE = Path(surefoot.__file__).parent


def test_no_other_file_touches_a_private_name_of_torch():
    assert all_uses(PACKAGE, "torch_inside") == []


@pytest.mark.parametrize(
    "line",
    [
        "from torch._subclasses.fake_tensor import FakeTensor",
        "from torch.utils.data.dataloader import _BaseDataLoaderIter",
        "import torch._dynamo as dynamo",
        "import torch; torch.cuda.memory._record_memory_history()",
        "import torch.distributed as dist; dist.distributed_c10d._get_default_store()",
        "import torch; torch.autograd._profiler_enabled()",
        "import torch; torch.ops.aten._softmax.default",
        "aten._grouped_mm",
        "def f(module): return module._modules",
        "def f(node): return node._sequence_nr()",
        "def f(node): return getattr(node, '_saved_dim', None)",
        "def f(tensor): return hasattr(tensor, '_version')",
        "class Mode:\n    def f(self): return self._cached_dispatch_impl()",
        "name = 'torch._dynamo'",
        "import torch; torch.autograd.backward = print",
        "import torch; torch.nn.Module.to, x = print, 1",
        "from torch.nn import functional as F; F.linear = print",
        "from torch import nn; setattr(nn.utils, 'clip_grad_norm_', print)",
        "import torch; stack.callback(setattr, torch, 'get_rng_state', print)",
        "class Functional:\n    def _parameters(self): ...\ndef f(module): return module._parameters",
    ],
)
def test_a_planted_use_is_found(line: str):
    assert list(private_uses(line))


@pytest.mark.parametrize(
    "line",
    [
        "import os; os._exit(1)",
        "import sys; sys._getframe(1)",
        "row._replace(loss=1)",
        "class Book:\n    def __init__(self): self._rows = 1\n    def same(self, it): return self._rows == it._rows",
        "import torch; torch.nn.Linear(1, 1).__class__",
        "from torch import nn\ndef f(head): head.forward = nn.Identity()",
    ],
)
def test_other_private_names_are_left_alone(line: str):
    assert not list(private_uses(line))
