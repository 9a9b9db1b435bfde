"""Peers: the environment in which other trainers run, beside the one that this runs in and with its torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import torch

NEEDED = ("lightning", "accelerate", "transformers", "torchdata")
PEERS = {"lightning": "by_lightning", "accelerate": "by_accelerate", "hf_trainer": "by_hf_trainer"}
FOLDER = Path(__file__).parent.parent / ".peers"
BENCH = Path(__file__).parent.parent


def python() -> str:
    """The interpreter of the peers' environment, which is made if it is not there."""
    made = FOLDER / "bin" / "python"
    if not (FOLDER / "complete").exists():
        print(f"installing {', '.join(NEEDED)} into {FOLDER}", file=sys.stderr, flush=True)
        venv.create(FOLDER, with_pip=True, clear=True)
        see_what_is_installed_here(made)
        _install(made)
        (FOLDER / "complete").touch()
    return str(made)


def environment(checkout: Path | None = None) -> dict[str, str]:
    """Of a trainer's process: one thread, and the modules of this folder and of surefoot at hand, or of a checkout."""
    paths = [str(BENCH), *(path for path in sys.path if (Path(path) / "surefoot").is_dir())]
    if checkout is not None:
        paths = [str(checkout / "bench"), str(checkout / "src")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def versions() -> dict[str, str]:
    """Of what is installed for the peers."""
    ask = f"import json; from importlib.metadata import version; print(json.dumps({{n: version(n) for n in {NEEDED}}}))"
    done = subprocess.run([python(), "-c", ask], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def see_what_is_installed_here(made: Path) -> None:
    """A file of paths, because `--system-site-packages` would look past an environment that this runs in."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs = subprocess.run([made, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    lines = [f"import site; site.addsitedir({path!r})\n" for path in sorted(ours)]
    (Path(theirs) / "running.pth").write_text("".join(lines), encoding="utf-8")


def _install(made: Path) -> None:
    pinned = FOLDER / "constraints.txt"
    pinned.write_text(f"torch=={torch.__version__}\n", encoding="utf-8")
    subprocess.run([made, "-m", "pip", "install", "--quiet", "--constraint", pinned, *NEEDED], check=True)
