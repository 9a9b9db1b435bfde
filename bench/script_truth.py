"""A process that really runs a script on a card that is this CPU.

    python script_truth.py RESULT UPDATES named|moved SCRIPT [its arguments]

It writes the most bytes that the card's tensors took, up to the end of each step. A step ends when each optimizer of
the script has made an update.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
import weakref
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
from card_on_cpu import CARD, card_on_cpu, counter, holds, moved
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_map_only

MOST_REPEATS = 6
"""An optimizer that makes so many updates while another makes none ends a step by itself."""


class Enough(BaseException):
    """Ends a script after its last step."""


class Steps:
    """The steps of a script, by the updates of its optimizers."""

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self.peaks: list[int] = []
        """The most bytes up to the end of each step."""
        self.made: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._since: Counter[int] = Counter()

    def made_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Notes an optimizer."""
        self.made.add(optimizer)

    def updated(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Ends a step, if each optimizer has made an update."""
        self._since[id(optimizer)] += 1
        if not {id(each) for each in self.made} <= set(self._since):
            if max(self._since.values()) < MOST_REPEATS:
                return
            self.made = weakref.WeakSet(each for each in self.made if id(each) in self._since)
        self._since.clear()
        self.peaks.append(counter().card_peak())
        counter().card_reset_peak()
        if len(self.peaks) >= self.updates:
            raise Enough


def main(result: Path, updates: int, is_moved: bool, script: str, *words: str) -> None:
    """Runs a script and writes what it took."""
    script = str(Path(script).resolve())  # frames of the script tell themselves by their folder
    folder = str(Path(script).parent)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    steps = Steps(updates)
    found: dict[str, Any] = {}
    with ExitStack() as entered:
        entered.enter_context(card_on_cpu(folder, ranks))
        _listen(steps, is_moved)
        sys.argv, sys.path[0] = [script, *words], folder
        try:
            runpy.run_path(script, run_name="__main__")
        except Enough:
            pass
        except SystemExit as leaving:
            if leaving.code:
                found["error"] = f"left with {leaving.code}"
        except BaseException as error:
            traceback.print_exc()
            found["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if len(steps.peaks) < updates:
            found["after"] = counter().card_peak()
    peaks = [*steps.peaks, found.get("after", 0)]
    if os.environ.get("RANK", "0") == "0":
        result.write_text(json.dumps({**found, "peak": max(peaks), "steps": steps.peaks}), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


def _listen(steps: Steps, is_moved: bool) -> None:
    plain = torch.optim.Optimizer.__init__

    def begin(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        plain(optimizer, *args, **kwargs)
        steps.made_optimizer(optimizer)

    torch.optim.Optimizer.__init__ = begin  # type: ignore[method-assign]
    register_optimizer_step_post_hook(steps.updated)
    if is_moved:
        torch.nn.modules.module.register_module_forward_pre_hook(_move)
    with suppress(ImportError):  # they refuse bf16 and fp16 on a CPU
        if "transformers" in os.environ.get("BENCH_PACKAGES", ""):
            import transformers.training_args

            transformers.training_args.is_torch_bf16_gpu_available = lambda: True


def _move(module: torch.nn.Module, args: Any) -> Any:
    """Counts the model and its batches as if they had been moved."""
    for each in (*module.parameters(), *module.buffers()):
        counter().card_take(each.untyped_storage().data_ptr())
    return tree_map_only(torch.Tensor, lambda each: each if holds(each) else moved(each, CARD), args)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "moved", *sys.argv[4:])
