"""ExecuTorch: the program for phones and small devices, with XNNPACK's kernels; compared in ExecuTorch's runtime."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from surefoot.exports.example_call import Call
from surefoot.exports.formats import CannotWrite, Job, Runner, need
from surefoot.exports.reasons import why
from surefoot.finetuning.quiet import quiet

NAME = "model.pte"
TOLERANCE = 1e-5
COMPARED = "ExecuTorch's runtime on the CPU"
MERGES = False
FIXES = True
EXTRA = "executorch"


def write(job: Job, path: Path) -> str:
    """Memory is planned ahead, so sizes that are free in the program are at most those of the example call."""
    with quiet():
        exir, passes = (
            need("executorch.exir", EXTRA, "a .pte file"),
            need("executorch.exir.passes", EXTRA, "a .pte file"),
        )
        kernels = need("executorch.backends.xnnpack.partition.xnnpack_partitioner", EXTRA, "a .pte file")
    program = job.program
    with quiet(), redirect_stderr(io.StringIO()):
        try:
            lowered = exir.to_edge_transform_and_lower(program, partitioner=[kernels.XnnpackPartitioner()])
            made = lowered.to_executorch(
                exir.ExecutorchBackendConfig(sym_shape_eval_pass=passes.HintBasedSymShapeEvalPass())
            )
        except Exception as error:  # its passes raise many types
            raise CannotWrite(why(error)) from error
    path.write_bytes(made.buffer)
    sizes = ", ".join(job.call.texts())
    takes = f"for {sizes} alone" if job.fixed else "for sizes up to those of the example call"
    return f"{takes}; outputs in the order of the program"


def runner(job: Job, path: Path) -> Runner:
    """Runs the file in ExecuTorch's runtime."""
    with quiet():
        runtime = need("executorch.runtime", EXTRA, "a .pte file").Runtime.get()
    method = runtime.load_program(str(path)).load_method("forward")

    def run(call: Call) -> Any:
        given = [each.detach().cpu().contiguous() for each in call.tensors]
        return tuple(each.clone() for each in method.execute(given))  # its memory is used again by the next call

    return run
