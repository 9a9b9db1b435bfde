"""A process that plans one script: `python -m surefoot.planning.scripts.script_child ORDER RESULT`. Both are files.

A script is planned in a process of its own: it may leave with `os._exit`, load libraries that decide by what they see,
and hold memory.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

from surefoot.errors import SurefootError
from surefoot.source.owners import is_users


def main(order: Path, result: Path) -> None:
    """Plans, and writes a plan or what went wrong."""
    asked = json.loads(order.read_text(encoding="utf-8"))
    try:
        text = _planned(asked)
    except SurefootError as error:
        text = json.dumps({"refused": str(error)})
    except BaseException as error:
        text = json.dumps({"failed": f"{type(error).__name__}: {error}", "at": _line(error)})
    result.write_text(text, encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # threads and exit handlers of the script's libraries have nothing left to do


def _planned(asked: dict[str, object]) -> str:
    from surefoot.hardware import counted
    from surefoot.planning.scripts.launch import launch_of
    from surefoot.planning.scripts.script import trace_script
    from surefoot.planning.scripts.script_plan import plan_of
    from surefoot.records.codec import to_json
    from surefoot.world.gpu.target import targets

    launch = launch_of(asked["command"])  # type: ignore[arg-type]
    on = str(asked["on"])
    count, single = counted(on)
    if launch.ranks is not None and count == 1 and launch.ranks > 1:
        count, on = launch.ranks, f"{launch.ranks}x{single}"
    _, gpu = targets(single)
    if count > 1 or launch.ranks is not None:
        world = str(count)
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=world, LOCAL_WORLD_SIZE=world, GROUP_RANK="0")
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29500")
    with TemporaryDirectory(prefix="surefoot-plan-") as folder:
        traced = trace_script(launch.run, gpu, Path(folder), ranks=count, updates=int(str(asked["updates"])))
    if not traced.steps:
        return json.dumps({"refused": "the script made no update of an optimizer: there is no training step to plan"})
    plan = plan_of(launch.name, traced, on, steps=asked["steps"], epochs=asked["epochs"])  # type: ignore[arg-type]
    return to_json(plan)


def _line(error: BaseException) -> str:
    """The innermost line of the script that an error went through."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if is_users(each.filename)]
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
