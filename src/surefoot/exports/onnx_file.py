"""ONNX, by torch's own exporter from the program of torch.export; compared in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from surefoot.exports.example_call import Call
from surefoot.exports.formats import CannotWrite, Job, Runner, need
from surefoot.exports.reasons import why
from surefoot.finetuning.quiet import quiet

NAME = "model.onnx"
TOLERANCE = 1e-5
COMPARED = "onnxruntime on the CPU"
MERGES = False
ALONE = "output"
"""The name of the output of a network that returns one tensor."""


def write(job: Job, path: Path) -> str:
    """Large weights go to a file beside it. Outputs are named by their places: `logits`, `0`."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        need(package, "export", "ONNX")
    program = job.program
    names = [name or ALONE for name in job.names]
    with quiet():
        try:
            made = torch.onnx.export(program, dynamo=True, output_names=names, verbose=False)
            assert made is not None
            made.save(path)
        except Exception as error:  # torch's exporter raises many types
            raise CannotWrite(_cause(error)) from error
    return f"outputs: {', '.join(names)}"


def runner(job: Job, path: Path) -> Runner:
    """Runs the file with onnxruntime."""
    answer = session_of(path)
    return lambda call: answer(call.args, call.kwargs)


def session_of(path: Path) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """A function from the arguments of a call to outputs: one tensor, a tuple, or a dict by name.

    An ONNX file is data. onnxruntime executes its own operators only.
    """
    library = need("onnxruntime", "export", "ONNX")
    options = library.SessionOptions()
    options.log_severity_level = 3
    session = library.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs, outputs = [each.name for each in session.get_inputs()], [each.name for each in session.get_outputs()]

    def answer(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = [each.detach().cpu().numpy() for each in Call(args, kwargs).tensors]
        if len(given) != len(inputs):
            raise ValueError(f"it takes {', '.join(inputs)}, and was given {len(given)} tensors")
        found = [torch.from_numpy(each) for each in session.run(None, dict(zip(inputs, given, strict=True)))]
        if outputs == [ALONE]:
            return found[0]
        return tuple(found) if outputs[0].isdigit() else dict(zip(outputs, found, strict=True))

    return answer


def _cause(error: BaseException) -> str:
    """The exporter wraps the error that stopped it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return why(error) if isinstance(error, Exception) else repr(error)
