"""Roofline, collectives and the cost of a run: hand sums."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from surefoot.costs import collectives
from surefoot.costs.napkin import napkin
from surefoot.costs.roofline import FILL, Ceilings, ceilings_of, seconds_of, step_time
from surefoot.costs.run_cost import best_interval, run_cost
from surefoot.costs.time_constants import Constants, constants
from surefoot.errors import UnknownDevice
from surefoot.hardware import Datasheet, cluster, datasheet
from surefoot.records.usage import Work

CEILINGS = Ceilings({"bf16": 100e12, "fp32": 10e12}, 1e12, kernel_seconds=5e-6)


def work(**of):
    plain = {"phase": "forward", "module": "", "operator": "mm", "format": "bf16", "flops": 0, "bytes_moved": 0}
    return Work(**{**plain, **of})


def test_the_slowest_of_three_bounds_an_operator():
    assert seconds_of(work(flops=10**12), CEILINGS) == (0.01, "compute")
    assert seconds_of(work(flops=10**12, format="fp32"), CEILINGS) == (0.1, "compute")
    assert seconds_of(work(bytes_moved=10**9), CEILINGS) == (0.001, "memory")
    assert seconds_of(work(flops=1, bytes_moved=1), CEILINGS) == (5e-6, "overhead")


def test_a_wave_that_is_not_full_takes_as_long_as_a_full_one():
    ceilings = Ceilings({"bf16": 1e12}, 1e15, kernel_seconds=0, processors=4)
    full = work(flops=2 * 256 * 256 * 64, shape=(1, 256, 256, 64))
    more = work(flops=2 * 256 * 257 * 64, shape=(1, 256, 257, 64))
    assert seconds_of(full, ceilings)[0] == pytest.approx(full.flops / 1e12 * (64 + FILL) / 64)
    assert seconds_of(more, ceilings)[0] == pytest.approx(2 * seconds_of(full, ceilings)[0])


def test_long_sums_of_few_tiles_are_split():
    ceilings = Ceilings({"bf16": 1e12}, 1e15, kernel_seconds=0, processors=4)
    short, long = (work(flops=2 * 128 * 128 * terms, shape=(1, 128, 128, terms)) for terms in (1024, 65536))
    assert seconds_of(short, ceilings)[0] > 3.9 * short.flops / 1e12  # one of four multiprocessors works
    assert seconds_of(long, ceilings)[0] == pytest.approx(long.flops / 1e12 * (16384 + FILL) / 16384)


def test_the_bytes_of_a_matrix_product_take_their_time_beside_its_flops():
    ceilings = Ceilings({"bf16": 1e12}, 1e9, kernel_seconds=0, processors=4)
    product = work(flops=2 * 256 * 256 * 64, bytes_moved=10**6, shape=(1, 256, 256, 64))
    assert seconds_of(product, ceilings) == (pytest.approx(product.flops / 1e12 * (64 + FILL) / 64 + 1e-3), "compute")


@pytest.mark.parametrize(
    ("device", "kernel", "share"),
    [
        ("a100-sxm-80gb", "", 0.60),
        ("a100-sxm-80gb", "flash-1", 0.32),
        ("h100-sxm", "flash-2", 0.35),
        ("h100-sxm", "", 0.6),
    ],
)
def test_attention_reaches_what_was_published_of_its_kernel(device, kernel, share):
    sheet = datasheet(device)
    attends = work(operator="_scaled_dot_product_flash_attention", flops=10**15)
    seconds, _ = seconds_of(attends, ceilings_of(sheet, attention=kernel))
    assert seconds == pytest.approx(10**15 / (share * sheet.dense_flops["bf16"]))


def test_a_step_adds_up_by_phase_by_module_and_by_bound():
    works = [work(flops=10**12, calls=3, module="a"), work(bytes_moved=10**9, phase="backward", module="b", calls=2)]
    time = step_time(works, CEILINGS, flops=3e12, peak_flops=3e14)
    assert time.seconds == pytest.approx(0.032)
    assert time.phases == pytest.approx({"forward": 0.03, "backward": 0.002})
    assert time.bounds == pytest.approx({"compute": 0.03, "memory": 0.002})
    assert list(time.modules) == ["a", "b"]
    assert time.flops_only_seconds == pytest.approx(0.01)


def test_a_device_without_peak_or_bandwidth_has_no_time():
    with pytest.raises(UnknownDevice, match="rtx-a6000 states no peak or no memory bandwidth"):
        ceilings_of(datasheet("rtx-a6000"))


def test_what_is_reached_is_a_share_of_the_fastest_measured_product():
    fitted = Constants({"8.0": 0.9, "9.0": 0.7}, 0.8, 0.9, 0.5, 5e-6, 0.8, 0.2)
    reached = {
        name: ceilings_of(datasheet(name), fitted=fitted).flops["bf16"]
        for name in ("h100-sxm", "a100-pcie-80gb", "a100-sxm-40gb", "h100-hbm2e-96gb", "b200-sxm", "l4")
    }
    assert reached["h100-sxm"] == pytest.approx(0.7 * 794.5e12)
    assert reached["a100-pcie-80gb"] == pytest.approx(0.9 * 252.9e12)
    assert reached["a100-sxm-40gb"] == pytest.approx(0.9 * 271.2e12)  # the fastest of its generation
    assert reached["h100-hbm2e-96gb"] == pytest.approx(0.7 * 794.5e12 / 989e12 * 912e12)
    assert reached["b200-sxm"] == pytest.approx(0.8 * 1745e12)  # the middle of what training reaches elsewhere
    assert 0.5 < reached["l4"] / datasheet("l4").dense_flops["bf16"] < 0.8


def test_products_in_fp8_have_a_rate_of_their_own():
    """Of the fastest measured one. Where no source states a peak, it is twice that of bfloat16."""
    fitted = Constants({"8.0": 0.9, "9.0": 0.7}, 0.8, 0.9, 0.5, 5e-6, 0.8, 0.2)
    reached = {
        name: ceilings_of(datasheet(name), fitted=fitted).flops["fp8"]
        for name in ("h100-sxm", "h100-hbm2e-96gb", "mi300x", "l4")
    }
    assert reached["h100-sxm"] == pytest.approx(0.7 * 1402.6e12)
    assert reached["h100-hbm2e-96gb"] == pytest.approx(0.7 * 1402.6e12 / 1979e12 * 2 * 912e12)
    bf16 = {name: ceilings_of(datasheet(name), fitted=fitted).flops["bf16"] for name in ("mi300x", "l4")}
    assert reached["l4"] == pytest.approx(2 * bf16["l4"])
    assert reached["mi300x"] == pytest.approx(2610 / 1307.4 * bf16["mi300x"])


def test_compiled_kernels_have_a_bandwidth_of_their_own():
    ceilings = Ceilings({"bf16": 1e12}, 1e12, 2e12, kernel_seconds=0)
    assert seconds_of(work(operator="add", bytes_moved=10**9), ceilings)[0] == pytest.approx(1e-3)
    assert seconds_of(work(operator="fused", bytes_moved=10**9), ceilings)[0] == pytest.approx(5e-4)


def test_a_step_of_many_small_kernels_waits_for_the_host():
    ceilings = Ceilings({"bf16": 1e12}, 1e12, kernel_seconds=1e-6, host_seconds=1e-5)
    small = step_time([work(bytes_moved=8, calls=1000)], ceilings)
    assert small.seconds == pytest.approx(1e-2)
    assert small.bounds == pytest.approx({"overhead": 1e-3, "host": 9e-3})
    large = step_time([work(flops=10**10, calls=1000)], ceilings)
    assert "host" not in large.bounds


def test_float32_products_in_tf32_take_the_rate_of_tf32_where_there_is_one():
    on = {name: ceilings_of(datasheet(name)) for name in ("a100-sxm-80gb", "v100-sxm-16gb")}
    product = work(flops=10**15, format="tf32")
    exact = work(flops=10**15, format="fp32")
    ampere, volta = (seconds_of(product, each)[0] / seconds_of(exact, each)[0] for each in on.values())
    assert ampere == pytest.approx(0.92 * 19.5 / (on["a100-sxm-80gb"].flops["tf32"] / 1e12))
    assert volta == 1


def test_a_cpu_does_one_thing_after_the_other():
    ceilings = Ceilings({"fp32": 1e12}, 1e12, kernel_seconds=0, call_seconds=1e-5)
    assert seconds_of(work(flops=10**9, format="fp32"), ceilings) == (pytest.approx(1e-3 + 1e-5), "compute")
    assert seconds_of(work(bytes_moved=10**6), ceilings) == (pytest.approx(1.1e-5), "overhead")


def test_a_machine_that_was_measured_reaches_what_was_measured():
    sheet = Datasheet("here", "", {}, 1, (), reached_flops={"fp32": 2e11}, memory_bandwidth=1e10, kernel_seconds=5e-6)
    ceilings = ceilings_of(sheet)
    assert (ceilings.flops, ceilings.memory_bandwidth, ceilings.call_seconds) == ({"fp32": 2e11}, 1e10, 5e-6)


# ------------------------------------------------------------------------------------------- collectives


def test_an_all_reduce_in_a_node_by_hand():
    eight = cluster("8xh100-sxm")
    group = collectives.group_of(eight, ranks=8)
    expected = 2 * 7 * 5e-6 / 2 + 2 * 7 / 8 * 1e9 / (constants().link_share * 450e9)
    assert collectives.seconds_of("all-reduce", 1e9, eight, group) == pytest.approx(expected)


@given(some.sampled_from(["all-reduce", "all-gather", "reduce-scatter"]), some.floats(1e3, 1e12), some.integers(2, 512))
def test_more_bytes_take_longer_and_an_all_reduce_is_no_slower_than_its_two_halves(kind, size, ranks):
    many = cluster("512xh100-sxm")
    group = collectives.group_of(many, ranks=ranks)
    seconds = collectives.seconds_of(kind, size, many, group)
    assert collectives.seconds_of(kind, 2 * size, many, group) > seconds
    halves = sum(collectives.seconds_of(half, size, many, group) for half in ("reduce-scatter", "all-gather"))
    assert collectives.seconds_of("all-reduce", size, many, group) <= halves * (1 + 1e-9)


def test_an_all_gather_over_many_nodes_goes_around_all_ranks():
    many = cluster("512xh100-sxm")
    hops = (512 - 64) * 5e-6 / 2 + 63 * 15e-6 / 2
    assert collectives.seconds_of("all-gather", 0, many, collectives.group_of(many, ranks=512)) == pytest.approx(hops)


def test_between_nodes_each_device_has_its_share_of_the_network():
    two_nodes = cluster("16xh100-sxm")
    across = collectives.group_of(two_nodes, ranks=2, stride=8)
    assert collectives.link_bandwidth(two_nodes, across) == pytest.approx(constants().link_share * 400e9 / 8)
    with pytest.raises(UnknownDevice, match="give one with --network"):
        collectives.link_bandwidth(cluster("16xa100-sxm-80gb"), across)


# ------------------------------------------------------------------------------------------- the run


@given(some.floats(0.1, 100), some.floats(1e-7, 1e-4))
def test_the_best_interval_loses_least(save_seconds, failures_per_second):
    def lost(interval: float) -> float:
        return save_seconds / interval + failures_per_second * (interval + save_seconds) / 2

    best = best_interval(save_seconds, failures_per_second)
    assert lost(best) <= 1.06 * min(lost(best * 2**n) for n in (-3, -2, -1, 1, 2, 3))


def test_days_and_dollars_of_a_run_by_hand():
    machines = cluster("8xh100-sxm", dollars_per_hour=2.0)
    cost = run_cost(machines, steps=1000, tokens_per_step=10, step_seconds=3.6, failures_per_device_hour=0)
    assert (cost.seconds, cost.device_hours, cost.dollars, cost.goodput) == (3600, 8, 16, 1)
    assert cost.kilowatt_hours == pytest.approx(8 * 0.7)
    assert cost.tokens == 10_000


def test_failures_cost_what_is_taken_again():
    machines = cluster("16384xh100-sxm")
    cost = run_cost(machines, steps=100_000, tokens_per_step=1, step_seconds=10, save_seconds=5)
    assert cost.failures == pytest.approx(cost.seconds / 86400 * 419 / 54)
    assert 0.9 < cost.goodput < 0.99
    assert 60 < cost.save_interval_seconds < 3600


# ------------------------------------------------------------------------------------------- the napkin


def test_sums_that_people_know_by_heart():
    many = napkin(cluster("1024xh100-sxm"), parameters=70e9, tokens=15e12)
    assert many.seconds / 86400 == pytest.approx(144, abs=0.5)
    eight = napkin(cluster("8xh100-sxm"), days=14)
    assert eight.held_parameters == 40e9
    assert eight.peak_flops_in_days == pytest.approx(9.57e21, rel=1e-3)
    assert napkin(cluster("8xh100-sxm"), days=7).peak_flops_in_days == pytest.approx(4.785e21, rel=1e-3)
    four = napkin(cluster("4xa100-sxm-80gb"), parameters=350e6, step_seconds=0.08)
    assert four.gradient_bytes == 1.4e9
    assert four.all_reduce_seconds == pytest.approx(7e-3)
    assert four.speedup == pytest.approx(3.7, abs=0.05)
    assert math.isclose(four.all_reduce_seconds / 2, 3.5e-3)
