"""Every module imports without what Windows and macOS lack. Whether surefoot works there is not tested here."""

import os
import subprocess
import sys
from pathlib import Path

import surefoot

HIDDEN = """
import builtins, importlib, mmap, os, pkgutil, signal, sys
for name in ("sysconf", "sysconf_names", "pread", "posix_fadvise", "killpg", "register_at_fork", "fork", "getuid"):
    vars(os).pop(name, None)
for name in ("SIGKILL", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGHUP", "alarm", "setitimer"):
    vars(signal).pop(name, None)
"""
BLOCKED = """
plain = builtins.__import__
def without(name, *given, **named):
    asking = given[0].get("__name__", "") if given and given[0] else ""
    if name in ("resource", "fcntl", "termios", "pwd", "grp") and asking.startswith("surefoot"):
        raise ImportError(name)
    return plain(name, *given, **named)
builtins.__import__ = without
import surefoot
wrong = []
for found in pkgutil.walk_packages(surefoot.__path__, "surefoot."):
    if found.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(found.name)
    except surefoot.errors.MissingPackage:
        pass
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("surefoot"):
            wrong.append(f"{found.name}: {error}")
    except Exception as error:
        wrong.append(f"{found.name}: {type(error).__name__}: {error}")
print("\\n".join(wrong))
"""


def test_every_module_imports_without_what_other_systems_lack():
    """torch and numpy are loaded first: they have their own ways there."""
    others = ("torch.distributed.checkpoint", "torch.utils.cpp_extension", "torch._dynamo", "numpy")
    first = f"import {', '.join(others)}\n"
    env = {**os.environ, "PYTHONPATH": str(Path(surefoot.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", first + HIDDEN + BLOCKED], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "\n"
