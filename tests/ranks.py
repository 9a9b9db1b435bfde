"""Work on several gloo ranks, each a process of its own, forked by one that has imported torch already.

`on_ranks([Case("tests.techniques.ranks", "losses", 2, (words,))], folder)` calls `losses(words)` on two ranks and
returns what each of them returned.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SECONDS = 600


@dataclass(frozen=True)
class Case:
    """A function of a module, called on every one of some ranks."""

    module: str
    function: str
    ranks: int
    arguments: tuple[Any, ...] = ()


def on_ranks(cases: list[Case], folder: Path) -> list[list[Any]]:
    """What each rank of each case returned, case by case; the ranks of a case run together, cases one after another."""
    import torch

    torch.save(cases, folder / "cases.pt")
    command = [sys.executable, "-W", "error", "-m", "tests.ranks", str(folder)]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, env=threads)
    assert done.returncode == 0, done.stdout + done.stderr
    return [
        [torch.load(folder / f"case-{number}-{rank}.pt", weights_only=False) for rank in range(case.ranks)]
        for number, case in enumerate(cases)
    ]


def _fork(case: Case, number: int, rank: int, folder: Path) -> int:
    import torch

    child = os.fork()
    if child:
        return child
    try:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": case.ranks, "TORCHELASTIC_RUN_ID": "test"}
        os.environ |= {name: str(value) for name, value in place.items()}
        meeting = f"file://{folder / f'meeting-{number}'}"
        if case.ranks > 1:
            torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=case.ranks)
        made = getattr(importlib.import_module(case.module), case.function)(*case.arguments)
        torch.save(made, folder / f"case-{number}-{rank}.pt")
        if case.ranks > 1:
            torch.distributed.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _run(folder: Path) -> None:
    import torch

    cases = torch.load(folder / "cases.pt", weights_only=False)
    for module in ("torch._dynamo", "torch.distributed.fsdp", *(case.module for case in cases)):
        importlib.import_module(module)  # once, for all that are forked
    for number, case in enumerate(cases):
        children = [_fork(case, number, rank, folder) for rank in range(case.ranks)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            raise SystemExit(f"{case} ended with {codes}")


if __name__ == "__main__":
    _run(Path(sys.argv[1]))
