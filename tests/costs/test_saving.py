"""The seconds of a checkpoint, by the speed of the storage."""

import pytest

from surefoot.costs.saving import SHARED_DISK, STORAGE, saving_seconds


def test_a_checkpoint_of_ten_gigabytes_takes_100_seconds_on_a_shared_disk():
    taken = saving_seconds(10 * 10**9)
    assert taken[STORAGE[SHARED_DISK]] == pytest.approx(100)
    assert list(taken.values()) == pytest.approx([100, 10, 2])
