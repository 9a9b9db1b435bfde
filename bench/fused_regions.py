"""fused_regions: the kernels that a plan counts on for a compiled step, beside those that torch's inductor makes.

    python bench/fused_regions.py [--quick] [--out FILE]

A plan joins the operators of a compiled step into regions (`meters/fused.py`). Here each model is also lowered and
scheduled by inductor for this CPU, as `torch.compile` would, up to the point where C++ is written: the kernels that are
left then, and the bytes they read and write, are inductor's own. Products, convolutions and attention are kernels of
libraries in both; compared are the others. The optimizer and the loss are not compiled.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from record import write_record
from torch import Tensor, nn
from torch._dynamo.utils import detect_fake_mode
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx, record_original_output_strides
from torch._inductor.debug import DebugContext
from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import ExternKernelSchedulerNode, NopKernelSchedulerNode
from torch._inductor.virtualized import V

import surefoot
from surefoot.planning.fake_step import Tracing

# ------------------------------------------------------------------------------------------- models


class Block(nn.Module):
    """Of a gpt; with `rms`, its norms are root mean squares written out, and its MLP is gated."""

    def __init__(self, width: int = 64, heads: int = 4, *, rms: bool = False) -> None:
        super().__init__()
        self.heads, self.rms = heads, rms
        self.norm_1, self.norm_2 = (nn.Parameter(torch.ones(width)) if rms else nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=not rms), nn.Linear(width, width, bias=not rms)
        self.up, self.down = nn.Linear(width, 4 * width, bias=not rms), nn.Linear(4 * width, width, bias=not rms)
        self.gate = nn.Linear(width, 4 * width, bias=False) if rms else None

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self._normed(x, self.norm_1)).chunk(3, dim=2)
        q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2) for each in qkv)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        y = self._normed(x, self.norm_2)
        return x + self.down(F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y))

    def _normed(self, x: Tensor, norm: Any) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * norm if self.rms else norm(x)


def convolutions() -> nn.Module:
    layers = [each for width in (3, 16) for each in (nn.Conv2d(width, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.Dropout(0.1), nn.ReLU(), nn.Linear(256, 16)
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (32, 64)),
    "gpt": (lambda: nn.Sequential(Block(), Block()), (2, 64, 64)),
    "llama": (lambda: nn.Sequential(Block(rms=True), Block(rms=True)), (2, 64, 64)),
    "convolutions": (convolutions, (4, 3, 16, 16)),
}
QUICK = ("mlp", "gpt", "convolutions")


# ------------------------------------------------------------------------------------------- inductor's, and the plan's


@dataclasses.dataclass(frozen=True)
class Kernels:
    """How many, and what they read and write."""

    count: int
    bytes_moved: int


def inductors(model: nn.Module, x: Tensor) -> Kernels:
    """Of a forward and a backward, without those of libraries."""
    found: list[int] = []

    def lower(graph_module: Any, inputs: Any, **_: Any) -> Any:
        fake = detect_fake_mode(inputs)
        record_original_output_strides(graph_module)
        view_to_reshape(graph_module)
        with V.set_fake_mode(fake):
            post_grad_passes(graph_module, False)
            graph = GraphLowering(graph_module, example_inputs=inputs, shape_env=fake.shape_env)
            with V.set_graph_handler(graph), V.set_debug_handler(DebugContext()):
                graph.run(*inputs)
                graph.init_wrapper_code()
                graph._update_scheduler()
                nodes = graph.scheduler.nodes
                others = (ExternKernelSchedulerNode, NopKernelSchedulerNode)
                found.extend(each.get_read_write_buffers_sizes() for each in nodes if not isinstance(each, others))
        return make_boxed_func(graph_module.forward)

    compiled = torch.compile(model, backend=lambda *given: compile_fx(*given, inner_compile=lower))
    compiled(x).square().mean().backward()
    return Kernels(len(found), sum(found))


def planned(model: Callable[[], nn.Module], x: Tensor, *, compiled: bool = True) -> Kernels:
    """The same of a plan; without `compiled`, all operators of the model that are no library's."""
    recipe = dataclasses.replace(surefoot.recipe_of(model, x), compile="whole" if compiled else "off")
    with Tracing(recipe, work=True) as tracing:
        made = tracing.build()
        tracing.run(made)
    of_model = [each for each in made.steady.work if each.phase in ("forward", "backward") and each.module]
    works = [each for each in of_model if not each.flops]
    return Kernels(sum(each.calls for each in works), sum(each.calls * each.bytes_moved for each in works))


def compared(name: str) -> dict[str, Any]:
    build, shape = MODELS[name]
    torch.manual_seed(0)
    x = torch.randn(shape)
    theirs, ours, plain = inductors(build(), x), planned(build, x), planned(build, x, compiled=False)
    return {
        "model": name,
        "operators": plain.count,
        "operator_bytes": plain.bytes_moved,
        "kernels": theirs.count,
        "regions": ours.count,
        "kernel_bytes": theirs.bytes_moved,
        "region_bytes": ours.bytes_moved,
        "kernels_error_pct": 100 * (ours.count / theirs.count - 1),
        "bytes_error_pct": 100 * (ours.bytes_moved / theirs.bytes_moved - 1),
    }


# ------------------------------------------------------------------------------------------- the command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--out", type=Path, help="write the record to this file")
    arguments = parser.parse_args()
    config.force_disable_caches = True
    warnings.simplefilter("ignore")
    rows = []
    print(
        f"{'model':14} {'operators':>9} {'kernels':>8} {'regions':>8} {'KiB':>8} {'of inductor':>12} {'of regions':>11}"
    )
    for name in QUICK if arguments.quick else MODELS:
        row = compared(name)
        rows.append(row)
        sizes = (row[key] / 1024 for key in ("operator_bytes", "kernel_bytes", "region_bytes"))
        counts = f"{row['operators']:9} {row['kernels']:8} {row['regions']:8}"
        print(f"{name:14} {counts} {'{:8.0f} {:12.0f} {:11.0f}'.format(*sizes)}", flush=True)
        if arguments.out:
            write_record(arguments.out, {"rows": rows})
    print(f"RESULT models={len(rows)} {spread(rows, 'kernels')} {spread(rows, 'bytes')}")


def spread(rows: list[dict[str, Any]], what: str) -> str:
    errors = [abs(row[f"{what}_error_pct"]) for row in rows]
    return f"{what}_worst_pct={max(errors):.1f} {what}_median_pct={statistics.median(errors):.1f}"


if __name__ == "__main__":
    main()
