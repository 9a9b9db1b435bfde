"""Mother: a process with the shim and surefoot loaded; each command runs in a child of it, on a disk that fails."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimizer would load it, in every child anew

import surefoot.ways.export
import surefoot.ways.plan
import surefoot.ways.train  # noqa: F401
from surefoot.cli import main as cli


def run(request: dict[str, Any]) -> int:
    """One command in a child. Its exit code; negative, if a signal ended it."""
    pid = os.fork()
    if pid == 0:
        _be_child(request)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _be_child(request: dict[str, Any]) -> None:
    code: Any = 0
    try:
        for descriptor, file in ((1, request["out"]), (2, request["err"])):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        os.chdir(request["cwd"])
        torch.set_num_threads(1)
        shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
        if request["record"]:
            shim.fault_record(os.fsencode(request["record"]))
        if fault := request["fault"]:
            error, skip, times = fault["error"], ctypes.c_long(fault["skip"]), ctypes.c_long(fault["times"])
            shim.fault_set(os.fsencode(fault["path"]), fault["calls"].encode(), error, skip, times)
        sys.argv = ["surefoot", *request["words"]]
        cli.main()
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(
            json.dumps(
                {"code": run(asked), "out": Path(asked["out"]).read_text(), "err": Path(asked["err"]).read_text()}
            ),
            flush=True,
        )
