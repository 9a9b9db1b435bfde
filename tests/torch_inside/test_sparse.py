"""torch_inside.sparse: the parts of real and fake sparse tensors, and fakes that become others."""

import pytest
import torch

from surefoot.torch_inside.fake_mode import FakeMode, FakeTensor
from surefoot.torch_inside.sparse import LAYOUTS, become, fake_sparse, is_sparse, parts_of, sparse_of

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
CONVERT = {
    torch.sparse_coo: lambda dense: dense.to_sparse(),
    torch.sparse_csr: lambda dense: dense.to_sparse_csr(),
    torch.sparse_csc: lambda dense: dense.to_sparse_csc(),
    torch.sparse_bsr: lambda dense: dense.to_sparse_bsr((1, 1)),
    torch.sparse_bsc: lambda dense: dense.to_sparse_bsc((1, 1)),
}


def test_every_sparse_layout_is_known():
    assert set(CONVERT) == LAYOUTS


@pytest.mark.parametrize("layout", CONVERT, ids=str)
def test_a_fake_has_the_parts_that_it_was_given(layout):
    real, mode = CONVERT[layout](torch.eye(4)), FakeMode()
    *indices, values = parts_of(real)
    assert len(values) == 4
    fake_values = mode.from_tensor(values.clone())
    fake = fake_sparse(mode, real, (*indices, fake_values))
    assert isinstance(fake, FakeTensor)
    assert (fake.layout, fake.shape) == (layout, real.shape)
    assert parts_of(fake)[-1] is fake_values
    assert torch.equal(sparse_of(fake, parts_of(real)).to_dense(), torch.eye(4))


def test_a_fake_becomes_another_in_place():
    mode = FakeMode()
    one, two = (
        fake_sparse(mode, each, parts_of(each)) for each in (torch.eye(4).to_sparse(), torch.ones(4, 4).to_sparse())
    )
    same = one
    become(one, two)
    assert same._nnz() == 16
    assert len(parts_of(same)[-1]) == 16


def test_calls_that_take_or_make_sparse_tensors():
    aten, dense = torch.ops.aten, torch.eye(2)
    assert is_sparse(aten.mm.default, [dense.to_sparse(), dense], {})
    assert is_sparse(aten.zeros.default, [], {"layout": torch.sparse_coo})
    assert is_sparse(aten.to_sparse.default, [dense], {})
    assert not is_sparse(aten.mm.default, [dense, dense], {"layout": torch.strided})
