"""What the stack of an allocation tells: the account, the phase, the module and the line of user code.

A stack is a list of frames, innermost first, as `torch.cuda.memory._snapshot()` describes them. Files are those of the
machine that wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.records.explanation import Place
from surefoot.source.owners import is_users

UNKNOWN = "unknown"
_COMPILED = ("torchinductor", "/torch/csrc/", "/aten/src/", "/c10/")
_MODULES = re.compile(r"torch/nn/modules/(\w+)\.py$")
_BACKWARD = re.compile(r"torch/autograd/(__init__|graph|function)\.py$|_tensor\.py$")
_OPTIMIZERS = re.compile(r"torch/optim/\w+\.py$|(^|/)(apex|bitsandbytes|deepspeed)/.*optim|/distributed/optim/")
_LOADED = re.compile(r"torch/serialization\.py$|safetensors/|torch/_utils\.py$")
_LOSSES = re.compile(r"loss|cross_entropy")
_GATHERED = re.compile(r"all_gather|unshard")
_CATEGORIES = {
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer_state": "optimizer",
    "input": "inputs",
    "activation": "activations",
    "temporary": "temporary",
    "autograd_detail": "temporary",
}
"""The categories of torch's memory profiler, and ours."""
_OWN = ("operator", "module", "phase", "account")
"""What stands in place of files in the snapshots that `surefoot plan --snapshot` writes."""


@dataclass(frozen=True)
class Told:
    """What a stack tells. `account` is `unknown` if it tells nothing."""

    account: str
    phase: str = ""
    module: str = ""
    operator: str = ""
    place: Place | None = None


def told_by(frames: Sequence[Any], category: str = "") -> Told:
    """Reads a stack. A category that a trace gives is more certain than a guess from the stack."""
    held = [each for each in map(_frame, frames) if each is not None]
    if held and all(file in _OWN for file, _, _ in held):
        return _own(held)
    account, phase = _guess(held)
    kinds = [found[1] for file, _, name in held if name == "forward" and (found := _MODULES.search(file))]
    known = _CATEGORIES.get(category.lower(), category.lower())
    return Told(
        known if known and known != UNKNOWN else account,
        phase,
        next((kind for kind in kinds if kind not in ("module", "container")), ""),
        place=next((_place(file, line, name) for file, line, name in held if _is_user(file)), None),
    )


_Frame = tuple[str, int, str]


def _frame(frame: Any) -> _Frame | None:
    """File, line and function of a frame; None if it is not one."""
    if not isinstance(frame, dict):
        return None
    file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
    if not isinstance(file, str) or not isinstance(name, str):
        return None
    return file.replace("\\", "/"), line if isinstance(line, int) else 0, name


def _own(held: list[_Frame]) -> Told:
    named = {file: name for file, _, name in held}
    phase, comma, _ = named.get("phase", "").partition(",")  # `forward, first step`; while building: only a title
    return Told(
        named.get("account", UNKNOWN), phase if comma else "init", named.get("module", ""), named.get("operator", "")
    )


def _guess(held: list[_Frame]) -> tuple[str, str]:
    """Account and phase. The innermost call that says something decides."""
    in_forward = False
    for file, _, name in held:
        if _OPTIMIZERS.search(file):
            is_state = any("init" in each for _, _, each in held) or "torch/optim/" not in file
            return ("optimizer" if is_state else "temporary"), "update"
        if "torch/distributed/" in file and ("fsdp" in file or "c10d" in file):
            return ("unsharded-parameters" if _GATHERED.search(name) else "communication"), _phase_around(held)
        if _MODULES.search(file):
            if name in ("_apply", "to", "cuda", "to_empty", "__init__", "reset_parameters", "convert"):
                return "parameters", "init"
            in_forward = in_forward or name in ("forward", "_call_impl")
            if file.endswith("/loss.py"):
                return "activations", "loss"
        if file.endswith("torch/nn/functional.py") and _LOSSES.search(name):
            return "activations", "loss"
        if name == "from_pretrained" or name == "load_state_dict" or _LOADED.search(file):
            return "parameters", "init"
        if "torch/utils/data/" in file or name == "pin_memory":
            return "inputs", "load"
        if "autograd::Engine" in name or (
            _BACKWARD.search(file) and name in ("backward", "grad", "_engine_run_backward")
        ):
            return ("activations" if in_forward else "gradients"), "backward"  # a forward inside it: recomputation
        in_forward = in_forward or (name == "forward" and _is_user(file))
    return ("activations", "forward") if in_forward else (UNKNOWN, "")


def _phase_around(held: list[_Frame]) -> str:
    if any("autograd" in file or "autograd::Engine" in name for file, _, name in held):
        return "backward"
    return "forward" if any(name == "forward" for _, _, name in held) else ""


def _is_user(file: str) -> bool:
    return file.endswith(".py") and is_users(file) and not any(part in file for part in _COMPILED)


def _place(file: str, line: int, name: str) -> Place:
    """The line of user code. Its text is on another machine: the function is named in its place."""
    return Place(file, line, f"in {name}")
