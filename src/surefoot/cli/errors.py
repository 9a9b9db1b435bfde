"""Prints the error of a command: one line, or the user's own frames and what surefoot was doing."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from traceback import FrameSummary, StackSummary, TracebackException
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from surefoot.cli.shared import rank
from surefoot.errors import RecipeError, SurefootError
from surefoot.reports.console import PlainConsole
from surefoot.source.owners import OWN, is_own, is_users, owner, package_of

RAISED, REFUSED = 1, 2
"""Exit codes: something raised, or surefoot refused on purpose."""
_RECIPES = os.path.join(OWN, "recipes") + os.sep
_MACHINERY = ("torch", "typer", "click", "rich", "numpy")
"""Installed packages between surefoot and a recipe. Others may hold what the recipe calls."""
_WORKER = re.compile(r"^Caught .* in DataLoader worker process.*\n^Original Traceback.*\n", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)\n(?P<rest>(?:    .*\n)*)', re.M)
_DISPATCHING = tuple(
    os.path.join("torch", *parts) for parts in (["_compile.py"], ["_ops.py"], ["_dynamo", "eval_frame.py"])
)
_FUNCTION_MODE = os.path.join("surefoot", "checks", "engine", "functions.py")
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"

_DOING = {
    ("load.py", "_module_from_file"): "imported the recipe's file",
    ("load.py", "_module"): "imported the recipe's module",
    ("load.py", "make_recipe"): "called the recipe's function",
    ("build.py", "build_model"): "built the recipe's model: model()",
    ("build.py", "build_data"): "made the recipe's data: data()",
    ("build.py", "build_evaluation"): "made the recipe's held-out data: evaluation()",
    ("step.py", "_loss"): "computed the recipe's loss: loss(model, batch)",
    ("step.py", "_update"): "made the update: optimizer.step()",
    ("step.py", "forward_backward"): "computed the gradients of the recipe's loss",
    ("step.py", "__init__"): "built the step: optimizer(parameters) and what goes with it",
    ("schedule.py", "<lambda>"): "asked the recipe's schedule for a learning rate",
    ("batches.py", "_collate"): "joined samples into a batch: collate(samples)",
    ("batches.py", "__call__"): "joined samples into a batch: collate(samples)",
    ("batches.py", "_gathered"): "read samples of the recipe's data set",
    ("batches.py", "__getitems__"): "read a sample of the recipe's data set",
    ("batches.py", "_sample"): "read a sample of the recipe's data set",
    ("batches.py", "__iter__"): "read the recipe's stream of samples",
    ("batches.py", ""): "read the recipe's data",
    ("identity.py", ""): "read a few samples of the recipe's data set to identify it",
    ("watch.py", "watch_script"): "ran the script",
}
"""What each function of surefoot was doing when it called into a recipe."""


def tell(error: Exception) -> int:
    """Prints an error as the user should see it. Returns the exit code of the command."""
    if isinstance(error, SurefootError):
        return _refused(error)
    console = PlainConsole(stderr=True, soft_wrap=True)
    for line in _lines(error):
        console.print(line, highlight=False, soft_wrap=True)
    return RAISED


def tell_usage(error: Any) -> int:
    """Prints an error of the command line, as typer raises it: the message and where the options are listed."""
    if message := error.format_message():
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else " ".join(["surefoot", *sys.argv[1:2]])
        more = f"\n`{command} --help` shows what it takes"
        PlainConsole(stderr=True).print(Text.assemble(("Error", "bold red"), f": {message}{more}"), highlight=False)
    return int(error.exit_code)


def _refused(error: SurefootError) -> int:
    if rank() == 0 or not (error.told or isinstance(error, RecipeError)):
        text = Text.assemble((f"error{_on_rank()}", "bold red"), f": {error}")
        PlainConsole(stderr=True).print(text, highlight=False)
    return REFUSED


def _lines(error: Exception) -> Iterator[RenderableType]:
    doing = _doing(_frames(error)[0])
    closing = f"while surefoot {doing or 'was at work'}{_on_rank()}. SUREFOOT_RAISE=1 shows the whole traceback."
    own = _own_line(error)
    if cut := _cut(error, is_users):
        yield Text(cut)
        yield from _explained(error)
        yield Text(
            f"{f'{own}, raised this inside of your code' if own else 'Your code raised this'} {closing}", style="dim"
        )
        if own:
            yield Text("If what your code passed to surefoot is right, it is a bug in surefoot. Please report it.")
        return
    if isinstance(error, OSError | MemoryError) or (doing and not own):
        yield Text((doing and _cut(error, _is_library)) or _frames(error)[1].rstrip(), style="bold")
        yield from _explained(error)
        yield Text(f"It was raised {closing}", style="dim")
        return
    yield Text("".join(traceback.format_exception(error)).rstrip())
    yield Text(
        f"No line of your code is in this traceback{_on_rank()}: it is a bug in surefoot. Please report it.",
        style="bold",
    )


def _explained(error: Exception) -> Iterator[RenderableType]:
    """The cause and what met, if there is something to say. An explanation that fails hides no error."""
    if "torch" not in sys.modules:
        return
    from surefoot.debug.errors.explain import explain
    from surefoot.debug.memory.out_of_memory import attached
    from surefoot.reports.explanation import explanation_text
    from surefoot.reports.out_of_memory import out_of_memory_text

    if (known := attached(error)) is not None:
        yield out_of_memory_text(known)
        return
    try:
        found = explain(error)
    except Exception as failure:
        yield Text(f"surefoot could not explain it: {type(failure).__name__}: {failure}", style="dim")
        return
    if found is not None:
        yield explanation_text(found)


def _cut(error: BaseException, is_wanted: Callable[[str], bool]) -> str:
    """The traceback of an error and its causes, with the wanted frames only; empty if there are none."""
    blocks: list[str] = []
    for each, joint in _chain(error):
        frames, last = _frames(each)
        kept = _kept(frames, is_wanted)
        is_in_file = isinstance(each, SyntaxError) and is_wanted(each.filename or "<unknown>")
        if kept or is_in_file or (each is error and blocks):
            head = ["Traceback (most recent call last):\n", *StackSummary.from_list(kept).format()] if kept else []
            blocks += [joint if blocks else "", *head, last]
    return "".join(blocks).rstrip()


def _kept(frames: list[FrameSummary], is_wanted: Callable[[str], bool]) -> list[FrameSummary]:
    """The wanted frames, and those of others inside the innermost of them, such as torch's.

    Without surefoot's own, and without what torch puts around them: the detour through `handle_torch_function`, and
    operators that are called from Python because a mode of surefoot's was on.
    """
    last = max((number for number, frame in enumerate(frames) if is_wanted(frame.filename)), default=len(frames))
    inside = frames[last + 1 :]
    own = [number for number, frame in enumerate(inside) if is_own(frame.filename)]
    detours = {n - back for n in own for back in (1, 2) if n and inside[n - 1].name == "handle_torch_function"}
    around = {n for n, frame in enumerate(inside) if own and n > own[0] and frame.filename.endswith(_DISPATCHING)}
    left_out = {*own, *detours, *around}
    rest = [frame for number, frame in enumerate(inside) if number not in left_out]
    return [*(frame for frame in frames[: last + 1] if is_wanted(frame.filename)), *rest]


def _chain(error: BaseException) -> list[tuple[BaseException, str]]:
    """The causes of an error, then the error, each with the line that Python prints between them."""
    found: list[tuple[BaseException, str]] = []
    now: BaseException | None = error
    while now is not None and all(now is not each for each, _ in found):
        cause = now.__cause__ is not None
        before = now.__cause__ if cause else None if now.__suppress_context__ else now.__context__
        found.insert(0, (now, f"\n{_CAUSE if cause else _CONTEXT}\n\n"))
        now = before
    return found


def _frames(error: BaseException) -> tuple[list[FrameSummary], str]:
    """The frames of an error and its last lines. A DataLoader worker sends them as text inside the message."""
    seen = TracebackException.from_exception(error)
    found = _WORKER.search(str(error))
    if found is None:
        return list(seen.stack), "".join(seen.format_exception_only())
    body = str(error)[found.end() :] + "\n"
    frames, end = [], 0
    for each in _FRAME.finditer(body):
        line, end = each["rest"].strip().partition("\n")[0], each.end()
        frames.append(FrameSummary(each["file"], int(each["line"]), each["name"], lookup_line=False, line=line))
    return frames, body[end:]


def _doing(frames: list[FrameSummary]) -> str:
    """What surefoot was doing when it called the user's code."""
    inside = max((number for number, frame in enumerate(frames) if is_users(frame.filename)), default=len(frames))
    for frame in reversed(frames[:inside]):
        file = os.path.basename(frame.filename)
        doing = _DOING.get((file, frame.name)) or _DOING.get((file, ""))
        if doing and is_own(frame.filename):
            return doing
    return ""


def _own_line(error: Exception) -> str:
    """`surefoot/step.py, line 9`: the line of surefoot that raised it. Empty if torch or a recipe did."""
    frames = _frames(error)[0]
    while frames and frames[-1].filename.endswith(_FUNCTION_MODE):  # it passes on what torch raises
        frames.pop()
    if not frames or not is_own(frames[-1].filename) or frames[-1].filename.startswith(_RECIPES):
        return ""
    return f"surefoot/{frames[-1].filename[len(OWN) :].replace(os.sep, '/')}, line {frames[-1].lineno}"


def _is_library(file: str) -> bool:
    """Is it a file of an installed package that a recipe may call?"""
    return owner(file) == "installed" and package_of(file) not in _MACHINERY


def _on_rank() -> str:
    return f" on rank {rank()}" if rank() else ""
