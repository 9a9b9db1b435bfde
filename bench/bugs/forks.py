"""Forks: a process that has torch loaded runs each program in a fork of itself, so that loading is paid for once.

It reads tasks as lines of JSON and answers each with one: `{"do": "surefoot", "file": ..., "arguments": [...]}` runs
the command, `{"do": "plain", ...}` the program alone. A task runs in its file's folder, in a process group of its own;
what it prints is kept beside the file.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""What a bench notes of one program."""

ALWAYS = (
    "torch",
    "torch._dynamo",
    "surefoot.cli.main",
    "surefoot.watch",
    "surefoot.ways.check",
    "surefoot.reports.findings",
    "surefoot.reports.watched",
)
ON_DEMAND = {
    "transformers": ("transformers.models.bert.modeling_bert", "transformers.models.llama.modeling_llama"),
    "import Trainer": ("transformers.trainer",),
    "import Accelerator": ("accelerate",),
    "import lightning": ("lightning",),
    "from peft": ("peft", "transformers.models.llama.modeling_llama"),
    "from trl": ("trl", "trl.trainer.sft_trainer", "trl.trainer.dpo_trainer", "datasets"),
}


def loaded_by(sources: list[str]) -> list[str]:
    """The modules that are worth loading before programs are forked."""
    wanted = [modules for mark, modules in ON_DEMAND.items() if any(mark in source for source in sources)]
    return [*ALWAYS, *(module for modules in wanted for module in modules)]


def environment(*, raising: bool = True) -> dict[str, str]:
    """Of a process that looks at programs: one thread, and this surefoot. `raising`: a probe that fails ends it."""
    paths = [str(Path(__file__).parent.parent), *(path for path in sys.path if (Path(path) / "surefoot").is_dir())]
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}
    raises = {"SUREFOOT_RAISE": "1" if raising else ""}
    return {**os.environ, **quiet, **raises, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


class Forks:
    """The process, seen from outside."""

    def __init__(self, python: str, modules: list[str], *, raising: bool = True) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "bugs.forks", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(raising=raising),
        )

    def run(self, **task: Any) -> dict[str, Any]:
        """The exit code, None for one that took too long; the seconds it took; those of the processor, as it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def in_lanes(look: Callable[[Any, Path, Forks], Row], programs: Sequence[Any], jobs: int) -> list[Row]:
    """Looks at every program, several at once. Each lane has forks of its own, which have loaded what it needs."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as threads:

        def lane(number: int) -> list[Row]:
            mine = programs[number::jobs]
            forks = Forks(sys.executable, loaded_by([each.source for each in mine]), raising=False)
            try:
                return [look(each, Path(folder), forks) for each in mine]
            finally:
                forks.close()

        return [row for rows in threads.map(lane, range(jobs)) for row in rows]


def serve() -> None:
    """Answers one task after another."""
    answers = os.fdopen(os.dup(1), "w")
    for name in sys.argv[1:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # what is loaded stays shared with the forks, and no collection looks through it
    for line in sys.stdin:
        task = json.loads(line)
        began = time.monotonic()
        before = _cpu_of_children()
        code = _in_fork(task)
        used = {"seconds": time.monotonic() - began, "cpu_seconds": _cpu_of_children() - before}
        print(json.dumps({"code": code, **used}), file=answers, flush=True)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _in_fork(task: dict[str, Any]) -> int | None:
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        _become(task)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    ends = time.monotonic() + task.get("timeout", 120)
    while time.monotonic() < ends:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _become(task: dict[str, Any]) -> None:
    """Never returns."""
    file = Path(task["file"])
    os.chdir(file.parent)
    for stream, name in ((0, os.devnull), (1, "stdout"), (2, "stderr")):
        opened = os.open(name, os.O_RDONLY if stream == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(opened, stream)
    code = 1
    try:
        code = {"surefoot": _surefoot, "plain": _plain, "untraced": _untraced}[task["do"]](task)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _surefoot(task: dict[str, Any]) -> int:
    from surefoot.cli.main import main

    sys.argv = ["surefoot", *task["arguments"]]
    main()
    return 0


# ------------------------------------------------------------------------------------------- the program alone


def _plain(task: dict[str, Any]) -> int:
    """Runs a program without surefoot; writes which of its lines ran and what its weights were after each step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    lines: set[int] = set()
    weights: list[float] = []

    def note(optimizer: Any, *_: Any) -> None:
        held = [p.detach().double().abs().sum().item() for group in optimizer.param_groups for p in group["params"]]
        weights.append(sum(held))

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != task["file"]:
            return None
        lines.add(frame.f_lineno)
        return trace

    register_optimizer_step_post_hook(note)
    warnings.simplefilter("ignore")
    sys.settrace(trace)
    try:
        _run(task)
    finally:
        sys.settrace(None)
    Path("ran.json").write_text(json.dumps({"lines": sorted(lines), "weights": weights}), encoding="utf-8")
    return 0


def _untraced(task: dict[str, Any]) -> int:
    """Runs a program without surefoot and looks at nothing: what it costs alone."""
    warnings.simplefilter("ignore")
    _run(task)
    return 0


def _run(task: dict[str, Any]) -> None:
    sys.argv = [task["file"]]
    if not task.get("recipe"):
        runpy.run_path(task["file"], run_name="__main__")
        return
    from surefoot.data.batches import batches_of
    from surefoot.recipe.load import load_recipe
    from surefoot.step import Step
    from surefoot.world.world import World

    recipe = load_recipe(f"{task['file']}:{task['recipe']}")
    step, batches = Step(recipe, World()), batches_of(recipe)
    for _ in range(4):
        step(next(batches) for _ in range(recipe.micro_batches()))
    if recipe.evaluation is not None:
        step.evaluate([next(batches)])
        recipe.evaluation()


if __name__ == "__main__":
    serve()
