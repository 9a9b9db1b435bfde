"""Napkin estimates: training time from 6ND, the largest model that fits, the time of one all-reduce."""

from surefoot.hardware import Cluster
from surefoot.records.napkin import Napkin

ADAMW_FP32_BYTES = 4 + 4 + 8  # parameter, gradient, two moments, each in float32
FLOPS_PER_PARAMETER_TOKEN = 6  # 2 forward, 4 backward


def training_flops(*, parameters: float, tokens: float) -> float:
    """FLOPs to train a dense model by the 6ND rule, which does not count attention."""
    return FLOPS_PER_PARAMETER_TOKEN * parameters * tokens


def training_seconds(*, parameters: float, tokens: float, devices: int, peak_flops: float, mfu: float) -> float:
    """Seconds of a whole training run at a given model FLOPs utilisation."""
    return training_flops(parameters=parameters, tokens=tokens) / (devices * peak_flops * mfu)


def largest_model(*, devices: int, memory_bytes: float, bytes_per_parameter: float = ADAMW_FP32_BYTES) -> float:
    """The number of parameters whose state fills the memory of all devices. Activations are not counted."""
    return devices * memory_bytes / bytes_per_parameter


def tensor_bytes(*shape: int, bytes_per_element: int = 4) -> int:
    """The bytes of a dense tensor."""
    elements = 1
    for size in shape:
        elements *= size
    return elements * bytes_per_element


def ring_seconds(*, size_bytes: float, devices: int, bytes_per_second: float) -> float:
    """A ring all-reduce: each device sends 2 (n - 1) / n of the data one way, and receives as much meanwhile."""
    return 2 * (devices - 1) / devices * size_bytes / bytes_per_second


def napkin(
    cluster: Cluster,
    *,
    mfu: float = 0.5,
    number_format: str = "bf16",
    parameters: float | None = None,
    tokens: float | None = None,
    days: float | None = None,
    step_seconds: float | None = None,
) -> Napkin:
    """All estimates that the given numbers allow."""
    device, count = cluster.device, cluster.count
    peak = device.dense_flops.get(number_format, 0.0)
    needed = seconds = dollars = gradients = reduce_seconds = speedup = None
    if parameters is not None and tokens is not None:
        needed = training_flops(parameters=parameters, tokens=tokens)
        if peak:
            seconds = needed / (count * peak * mfu)
            dollars = seconds / 3600 * count * cluster.dollars_per_hour if cluster.dollars_per_hour else None
    if parameters is not None and 1 < count <= cluster.per_node and device.link_bandwidth:
        gradients = 4 * parameters
        reduce_seconds = ring_seconds(size_bytes=gradients, devices=count, bytes_per_second=device.link_bandwidth)
        speedup = None if step_seconds is None else count * step_seconds / (step_seconds + reduce_seconds)
    return Napkin(
        devices=cluster.name,
        peak_flops=peak,
        mfu=mfu,
        held_parameters=largest_model(devices=count, memory_bytes=device.memory_bytes),
        parameters=parameters,
        tokens=tokens,
        training_flops=needed,
        seconds=seconds,
        dollars=dollars,
        days=days,
        flops_in_days=None if days is None else days * 86400 * count * peak * mfu,
        peak_flops_in_days=None if days is None else days * 86400 * count * peak,
        gradient_bytes=gradients,
        all_reduce_seconds=reduce_seconds,
        link_bandwidth=device.link_bandwidth if gradients else None,
        speedup=speedup,
    )
