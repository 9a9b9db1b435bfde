"""The names that people use: one device, a stated choice among several, or a refusal; and the machines of clouds."""

import pytest

from surefoot.hardware import cluster, datasheet, known_devices, names_said, network
from surefoot.hardware.aliases import FAMILIES, instance, known_instances
from surefoot.hardware.names import DRIVER_NAMES
from surefoot.world.gpu.target import targets


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("GeForce RTX 3060", "rtx-3060"),
        ("4060", "rtx-4060"),
        ("6000ada", "rtx-6000-ada"),
        ("a6000", "rtx-a6000"),
        ("h200", "h200-sxm"),
        ("H100-SXM5", "h100-sxm"),
        ("tesla-t4", "t4"),
        ("m4-max", "apple-m4-max"),
        ("mi300", "mi300x"),
    ],
)
def test_another_spelling_is_the_same_device_and_nothing_is_said(name, device):
    assert datasheet(name).name == device
    assert names_said(f"8x{name}") == ""


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("h100", "h100-sxm"),
        ("a100", "a100-sxm-80gb"),
        ("a100-40gb", "a100-sxm-40gb"),
        ("V100", "v100-sxm-16gb"),
        ("4060ti", "rtx-4060-ti-8gb"),
    ],
)
def test_a_choice_among_several_devices_is_said_and_assumed(name, device):
    said = names_said(f"8x{name}")
    assert said.startswith(f"{name} is taken for {device}; there are also ")
    ranks, gpu = targets(f"8x{name}")
    assert (ranks, gpu.name) == (8, device)
    assert gpu.policies[0] == said
    assert targets(device)[1].policies == gpu.policies[1:]


def test_families_name_known_devices_and_every_name_means_itself():
    assert {each for family in FAMILIES.values() for each in family} <= set(known_devices())
    assert all(datasheet(name).name == name and not names_said(name) for name in known_devices())
    assert all(datasheet(driver).name == name for driver, name in DRIVER_NAMES.items())


@pytest.mark.parametrize(
    ("name", "count", "device", "between"),
    [
        ("p4d.24xlarge", 8, "a100-sxm-40gb", "aws-p4d"),
        ("2xp5.48xlarge", 16, "h100-sxm", "aws-p5"),
        ("a3-highgpu-8g", 8, "h100-sxm", "gcp-a3-high"),
        ("Standard_ND96amsr_A100_v4", 8, "a100-sxm-80gb", "azure-nd-a100-v4"),
        ("g5.12xlarge", 4, "a10g", None),
    ],
)
def test_a_machine_of_a_cloud_is_its_devices_and_links(name, count, device, between):
    machines = cluster(name)
    assert (machines.count, machines.device.name) == (count, device)
    assert machines.network == (network(between) if between else None)
    assert not machines.network_is_assumed
    assert f"is {instance(name.removeprefix('2x')).count} x {device}" in names_said(name)
    assert machines.per_node == instance(name.removeprefix("2x")).count


@pytest.mark.parametrize("name", known_instances())
def test_every_machine_has_known_parts_and_a_source(name):
    machine = instance(name)
    assert machine.device in known_devices()
    assert machine.source.startswith("https://")
    assert machine.network is None or network(machine.network).source
    assert name not in known_devices()


@pytest.mark.parametrize("name", ["rtx-3060", "rtx-3080", "rtx-4060", "rtx-4070", "rtx-4080", "rtx-5070", "rtx-5080"])
def test_the_peaks_of_a_geforce_card_are_those_of_fp32_accumulation(name):
    peaks = datasheet(name).dense_flops
    assert peaks["bf16"] == pytest.approx(2 * peaks["fp32"], rel=0.01)
