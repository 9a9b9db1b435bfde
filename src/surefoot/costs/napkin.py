"""Sums that fit on a napkin: training time from 6ND, and the largest model that fits its states."""

ADAMW_FP32_BYTES = 4 + 4 + 8  # parameter, gradient, two moments, each in float32
FLOPS_PER_PARAMETER_TOKEN = 6  # 2 forward, 4 backward


def training_flops(*, parameters: float, tokens: float) -> float:
    """FLOPs to train a dense model by the 6ND rule: attention is not counted."""
    return FLOPS_PER_PARAMETER_TOKEN * parameters * tokens


def training_seconds(*, parameters: float, tokens: float, devices: int, peak_flops: float, mfu: float) -> float:
    """Seconds of a whole training run at a given model FLOPs utilisation."""
    return training_flops(parameters=parameters, tokens=tokens) / (devices * peak_flops * mfu)


def largest_model(*, devices: int, memory_bytes: float, bytes_per_parameter: float = ADAMW_FP32_BYTES) -> float:
    """Parameters whose states fill the memory of all devices; activations are not counted."""
    return devices * memory_bytes / bytes_per_parameter


def tensor_bytes(*shape: int, bytes_per_element: int = 4) -> int:
    """The bytes of a dense tensor."""
    elements = 1
    for size in shape:
        elements *= size
    return elements * bytes_per_element
