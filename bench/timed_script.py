"""Runs a script bare or watched, and notes the CPU seconds of the process at its start and after every update.

python bench/timed_script.py NOTES bare|watched SCRIPT [ARGS]
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path


def main() -> None:
    notes, kind, script, *args = sys.argv[1:]
    import torch  # both sides import it here, so that the first moment is that of the script alone
    from torch.optim.optimizer import register_optimizer_step_post_hook

    moments: list[float] = []
    register_optimizer_step_post_hook(lambda *_: moments.append(time.process_time()))
    torch.set_num_threads(1)
    moments.append(time.process_time())
    try:
        if kind == "bare":
            sys.argv = [script, *args]
            runpy.run_path(script, run_name="__main__")
        else:
            from surefoot.cli.main import main as surefoot

            sys.argv = ["surefoot", "watch", script, "--", *args]
            surefoot()
    finally:
        Path(notes).write_text(json.dumps(moments), encoding="utf-8")


if __name__ == "__main__":
    main()
