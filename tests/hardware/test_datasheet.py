"""Datasheets: dense peaks with sources; an unknown device stays unknown."""

import pytest

from surefoot.errors import UnknownDevice
from surefoot.hardware import datasheet, known_devices
from surefoot.hardware.here import here


@pytest.mark.parametrize("name", known_devices())
def test_every_number_has_a_source_and_no_peak_is_sparse(name: str):
    sheet = datasheet(name)
    assert sheet.sources
    assert sheet.memory_bytes > 1e9 or name == "gb300"  # no source states it
    assert all(price.dollars_per_hour > 0.05 and price.source for price in sheet.prices)
    assert all(share < sheet.dense_flops[each] for each, share in (sheet.reached_flops or {}).items())
    peaks = sheet.dense_flops
    if "tf32" in peaks:
        assert peaks["bf16"] == pytest.approx(2 * peaks["tf32"], rel=0.02)
    if "fp8" in peaks:
        assert peaks["fp8"] == pytest.approx(2 * peaks["bf16"], rel=0.02)
    if sheet.compute_capability:
        assert peaks.get("bf16", 0) < (3000e12 if sheet.compute_capability.startswith("10.") else 1000e12)


@pytest.mark.parametrize("name", known_devices())
def test_what_cuda_reports_is_near_the_label(name: str):
    sheet = datasheet(name)
    if sheet.usable_bytes:
        assert 0.9 < sheet.usable_bytes / sheet.memory_bytes < 1.08
    assert bool(sheet.compute_capability) == (sheet.vendor == "NVIDIA")


def test_an_unknown_device_says_where_the_known_ones_are():
    with pytest.raises(UnknownDevice, match=r"'h100x'; did you mean 'h100-sxm'.*\? `surefoot hardware list` shows all"):
        datasheet("h100x")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"name": "here"}', "it has no field"),
        (b"\xff", "not UTF-8"),
        (b'{"name": "here", "dense_flops": {"float32": "fast"}}', "dense_flops/float32 is 'fast', not a number"),
    ],
)
def test_a_damaged_datasheet_of_this_machine_is_refused(tmp_path, monkeypatch, content, said):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "surefoot").mkdir()
    (tmp_path / "surefoot" / "here.json").write_bytes(content)
    with pytest.raises(UnknownDevice, match=rf"here\.json is damaged: .*{said}.*`surefoot hardware measure`"):
        here()
