"""Looks at what is installed and at what this machine can do, and runs the self-test, for `surefoot doctor`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

from surefoot.errors import MissingPackage, installing
from surefoot.hardware.host import memory_bytes
from surefoot.records.doctor import Checkup, Device, Extra, SelfTest
from surefoot.torch_inside.version import OLDEST, is_tried, not_tried, numbers, require_torch
from surefoot.units import bytes_text

PURPOSES = {
    "arrow": "Parquet, Arrow and folders of `datasets`, `surefoot train finetune data=FILE`",
    "data": "text to tokens, `surefoot data tokenize`",
    "executorch": "programs for phones and small devices, `surefoot export --format pte`",
    "export": "ONNX and GGUF, `surefoot export --format onnx`",
    "finetune": "adapters and 4-bit layers on Hugging Face models, `surefoot train finetune`",
    "hf": "Hugging Face models, `surefoot plan --hf FOLDER`",
    "hub": "models by their name, `surefoot plan finetune model=ORG/NAME`",
    "llama-cpp": "a comparison of GGUF files in llama.cpp, `surefoot export --format gguf`",
    "log": "TensorBoard, Weights & Biases and MLflow, `surefoot train --log TOOL`",
    "mcp": "plans and checks for coding assistants, `surefoot mcp`",
    "metrics": "torchmetrics objects as metrics of a recipe, `Recipe(metrics=...)`",
    "quantize": "weights in int8, `surefoot export --quantize int8`",
    "remote": "a copy of each run on S3 and other stores, `mirror=s3://...`",
    "report": "pages and pictures, `surefoot report --html FILE`",
    "stuck": "the stacks of a training that hangs, `surefoot stuck`",
    "sweep": "a search for settings, `surefoot sweep RECIPE lr=1e-5..1e-3`",
    "tasks": "tasks of lm-evaluation-harness, `surefoot evaluate --tasks FOLDER`",
}
"""What each extra of pyproject.toml is for."""
OF_DEVELOPERS = ("dev", "docs")
"""Extras for people who change surefoot itself."""


def checkup() -> Checkup:
    """Looks at this machine and runs the self-test. A torch that cannot be used is a failed test, not a crash."""
    versions = {"surefoot": _version("surefoot"), "python": platform.python_version(), "torch": _version("torch")}
    devices: tuple[Device, ...] = ()
    compiler: str | None = None
    if unusable := _unusable_torch():
        tests: tuple[SelfTest, ...] = (unusable,)
    else:
        from surefoot.cli.self_test import self_test
        from surefoot.meters.allocator import compiler as found_compiler

        devices, compiler, tests = (_cpu(), _cuda(), _mps()), found_compiler(), self_test()
    folder = Path.cwd()
    free = shutil.disk_usage(folder).free
    versions["system"] = platform.platform()
    return Checkup(versions, devices, compiler, str(folder), free, extras(), tests, _standing(versions["torch"]))


def _unusable_torch() -> SelfTest | None:
    """The failed test of a torch that is missing, too old or broken."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the report has a line for a torch that nobody has tried
            require_torch()
        import torch  # noqa: F401
    except MissingPackage as error:
        said, _, remedy = str(error).partition(": ")
        return SelfTest("torch", False, said, 0.0, remedy)
    except Exception as error:
        remedy = "install torch anew: pip install --force-reinstall torch"
        return SelfTest("torch", False, f"torch cannot be imported: {error}", 0.0, remedy)
    return None


def _standing(version: str) -> str:
    """Whether surefoot works with a version of torch, as far as is known."""
    if version == "none" or not (parts := numbers(version)):
        return "pip has no note of its version"
    if parts < OLDEST:
        return f"{version} is too old: surefoot needs {'.'.join(map(str, OLDEST))} or newer"
    return f"surefoot was tried with {version}" if is_tried(version) else f"{not_tried(version)}; see the self-test"


def extras() -> tuple[Extra, ...]:
    """The optional extras, as the installed package declares them."""
    wanted: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("surefoot") or ():
        found = re.match(r"([\w.-]+).*\bextra == ['\"]([\w-]+)['\"]", line)
        if found and found[2] not in OF_DEVELOPERS:
            wanted.setdefault(found[2], []).append(found[1])
    return tuple(_extra(name, sorted(packages)) for name, packages in sorted(wanted.items()))


def _extra(name: str, packages: list[str]) -> Extra:
    missing = tuple(each for each in packages if _version(each) == "none")
    installed = tuple(f"{each} {_version(each)}" for each in packages if each not in missing)
    return Extra(
        name, PURPOSES.get(name, ", ".join(packages)), installed, missing, installing(name, *(missing or packages))
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _cpu() -> Device:
    import torch

    can: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # since torch 2.10
    named = can.get("cpu_name") or platform.processor() or platform.machine()
    facts = [str(named), f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}"]
    facts.append(torch.backends.cpu.get_cpu_capability())
    if (memory := memory_bytes()) is not None:
        facts.append(f"{bytes_text(memory)} of memory")
    native = any(can.get(name) for name in ("avx512_bf16", "amx_bf16", "arm_bf16", "bf16"))
    return Device("cpu", ", ".join(facts), "bf16 in hardware" if native else "bf16 works, but without hardware for it")


def _cuda() -> Device:
    import torch

    from surefoot.world import cuda

    if not cuda.is_there():
        built = torch.version.cuda or torch.version.hip
        return Device(
            "cuda",
            "no GPU found, so everything runs on the CPU; plans for GPUs need none"
            if built
            else "this torch is built for CPUs only; see pytorch.org for others",
        )
    found = cuda.properties()
    about = f"{found.count} x {found.name}, {bytes_text(found.memory_bytes)} each"
    return Device("cuda", about, f"bf16 {'in hardware' if found.bf16 else 'not supported'}")


def _mps() -> Device:
    import torch

    return Device("mps", "Apple GPU found" if torch.backends.mps.is_available() else "no Apple GPU found")
