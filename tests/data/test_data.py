"""From files to micro-batches: every sample once per epoch, in an order that the seed decides."""

import gzip
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from surefoot.data.batches import micro_batches
from surefoot.data.idx import find_idx, read_idx
from surefoot.data.text import byte_windows
from surefoot.errors import RecipeError
from tests.conftest import write_idx


@settings(max_examples=30, deadline=None)
@given(samples=st.integers(1, 50), size=st.integers(1, 13), seed=st.integers(0, 100))
def test_every_sample_once_per_epoch(samples, size, seed):
    batches = micro_batches(TensorDataset(torch.arange(samples)), size=size, seed=seed)
    needed = -(-3 * samples // size)
    seen = torch.cat([batch[0] for batch in islice(batches, needed)]).tolist()
    for epoch in range(3):
        assert sorted(seen[epoch * samples : (epoch + 1) * samples]) == list(range(samples))


def test_the_seed_decides_and_the_global_generator_is_left_alone():
    data = TensorDataset(torch.arange(100))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, other = (next(micro_batches(data, size=20, seed=seed))[0].tolist() for seed in (1, 1, 2))
    assert one == two != other
    assert torch.equal(torch.get_rng_state(), before)


def test_targets_are_the_inputs_shifted_by_one(tmp_path):
    (tmp_path / "b.txt").write_text("world")
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / "picture.bin").write_bytes(b"\xff\xfe\x00")
    windows = byte_windows(str(tmp_path), 4)
    whole = b"hello\nworld"
    assert len(windows) == 2
    x, y = windows[1]
    assert bytes(x.tolist()) == whole[4:8]
    assert bytes(y.tolist()) == whole[5:9]
    assert x.dtype is torch.int64


def test_the_standard_library_is_always_there():
    windows = byte_windows("stdlib", 128)
    assert len(windows) * 128 > 1_000_000


def test_too_little_text_and_no_folder_are_said(tmp_path):
    (tmp_path / "a.txt").write_text("tiny")
    with pytest.raises(RecipeError, match=r"holds 4 bytes of text, and one sample needs 129"):
        byte_windows(str(tmp_path), 128)
    with pytest.raises(RecipeError, match="no folder"):
        byte_windows(str(tmp_path / "none"), 128)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_there_and_back(tmp_path, packed: bool):
    array = np.random.default_rng(0).integers(0, 256, (3, 5, 7), dtype=np.uint8)
    path = tmp_path / "images"
    write_idx(path, array)
    if packed:
        (tmp_path / "images.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert np.array_equal(read_idx(find_idx(tmp_path, "images")), array)


def test_a_cut_or_foreign_idx_file_is_refused(tmp_path):
    path = tmp_path / "images"
    write_idx(path, np.zeros((3, 5), dtype=np.uint8))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecipeError, match=r"is cut: its sizes \(3, 5\) need 15 bytes, and it holds 14"):
        read_idx(path)
    path.write_bytes(b"PNG")
    with pytest.raises(RecipeError, match="is not an IDX file"):
        read_idx(path)
    with pytest.raises(RecipeError, match="dataset-fashion-mnist"):
        find_idx(tmp_path, "labels")
