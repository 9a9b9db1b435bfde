"""Datasheets: dense peaks with sources; an unknown device stays unknown."""

import pytest

from surefoot.errors import UnknownDevice
from surefoot.hardware import datasheet, known_devices


@pytest.mark.parametrize("name", known_devices())
def test_every_number_has_a_source_and_no_peak_is_sparse(name: str):
    sheet = datasheet(name)
    assert sheet.sources
    assert sheet.memory_bytes > 1e9
    assert sheet.dense_flops["bf16"] == pytest.approx(2 * sheet.dense_flops["tf32"], rel=0.01)
    assert sheet.dense_flops["bf16"] < 1000e12


def test_an_unknown_device_lists_the_known_ones():
    with pytest.raises(UnknownDevice, match="no datasheet for 'h100x'; known: a100-sxm-80gb, h100-sxm"):
        datasheet("h100x")
