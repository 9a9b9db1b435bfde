"""Looks at what is installed and at what this machine can do, and runs the self-test, for `surefoot doctor`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
from pathlib import Path

from surefoot.records.doctor import Checkup, Device, Extra, SelfTest
from surefoot.records.units import bytes_text

ADDS = {
    "data": "text to tokens, `surefoot data tokenize`",
    "executorch": "programs for phones and small devices, `surefoot export --format pte`",
    "export": "ONNX and GGUF, `surefoot export --format onnx`",
    "finetune": "adapters and 4-bit layers on Hugging Face models, `surefoot train finetune`",
    "hf": "Hugging Face models, `surefoot plan --hf FOLDER`",
    "llama-cpp": "a comparison of GGUF files in llama.cpp, `surefoot export --format gguf`",
    "log": "TensorBoard, Weights & Biases and MLflow, `surefoot train --log TOOL`",
    "metrics": "torchmetrics objects as metrics of a recipe, `Recipe(metrics=...)`",
    "quantize": "weights in int8, `surefoot export --quantize int8`",
    "remote": "a copy of each run on S3 and other stores, `mirror=s3://...`",
    "report": "pages and pictures, `surefoot report --html FILE`",
    "stuck": "the stacks of a training that hangs, `surefoot stuck`",
    "tasks": "tasks of lm-evaluation-harness, `surefoot evaluate --tasks FOLDER`",
}
"""What each extra of pyproject.toml is for."""
OF_DEVELOPERS = ("dev", "docs")
"""Extras for people who change surefoot itself."""


def checkup() -> Checkup:
    """Looks at this machine and runs the self-test. A torch that cannot be imported is a failed test, not a crash."""
    versions = {"surefoot": _version("surefoot"), "python": platform.python_version(), "torch": _version("torch")}
    devices: tuple[Device, ...] = ()
    compiler: str | None = None
    try:
        import torch  # noqa: F401
    except Exception as error:
        remedy = "install torch anew: pip install --force-reinstall torch==2.13.0"
        tests: tuple[SelfTest, ...] = (SelfTest("torch", False, f"torch cannot be imported: {error}", 0.0, remedy),)
    else:
        from surefoot.cli.self_test import self_test
        from surefoot.meters.allocator import compiler as found_compiler

        devices, compiler, tests = (_cpu(), _cuda(), _mps()), found_compiler(), self_test()
    folder = Path.cwd()
    free = shutil.disk_usage(folder).free
    return Checkup({**versions, "system": platform.platform()}, devices, compiler, str(folder), free, extras(), tests)


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
    return Extra(name, ADDS.get(name, ", ".join(packages)), installed, missing, f"pip install 'surefoot[{name}]'")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _cpu() -> Device:
    import torch

    can = torch.cpu.get_capabilities()
    named = can.get("cpu_name") or platform.processor() or platform.machine()
    facts = [str(named), f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}"]
    facts.append(torch.backends.cpu.get_cpu_capability())
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        facts.append(f"{bytes_text(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'))} of memory")
    native = any(can.get(name) for name in ("avx512_bf16", "amx_bf16", "arm_bf16", "bf16"))
    return Device("cpu", ", ".join(facts), "bf16 in hardware" if native else "bf16 works, but without hardware for it")


def _cuda() -> Device:
    import torch

    from surefoot.world import cuda

    if not cuda.is_there():
        built = torch.version.cuda or torch.version.hip
        return Device(
            "cuda", "no GPU found" if built else "this torch is built for CPUs only; see pytorch.org for others"
        )
    found = cuda.properties()
    about = f"{found.count} x {found.name}, {bytes_text(found.memory_bytes)} each"
    return Device("cuda", about, f"bf16 {'in hardware' if found.bf16 else 'not supported'}")


def _mps() -> Device:
    import torch

    return Device("mps", "Apple GPU found" if torch.backends.mps.is_available() else "no Apple GPU found")
