"""torch_matrix: surefoot as users install it, with each torch that it supports.

    python bench/torch_matrix.py [--quick | --versions V ...] [--python FILE] [--tier V ...] [--only CELL ...]
                                  [--folder DIR] [--out FILE]

For each version of torch, a new environment gets that torch, then this checkout (`pip install '.[report]'`), then
transformers and peft. A CUDA build takes 5.4 GB of disk and about 7 minutes; its environment is deleted before the next
one is made. There, the commands of surefoot are typed as a user types them, and what they print is read. A cell is

- `ok`;
- a sentence: the command stopped with one line of its own that names the torch it needs;
- `failed`, with the last lines printed.

`--quick` is torch 2.13.0 alone. `--tier` also runs `pytest -m quick` of this checkout with the installed wheel, for the
versions named. `--python` is the interpreter of the environments. With `--out`, cells that the file holds already are
kept, so that the matrix can be filled row by row, or some cells again (`--only`). With `--folder`, environments are
made there and kept.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from record import write_record

ROOT = Path(__file__).parent.parent
VERSIONS = ("2.8.0", "2.10.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
QUICK = "2.13.0"
KILLED = "torch_matrix_recipe.py"
RUN = "runs/first"
TINY = ("gpt", "size=tiny", "precision=bf16-mixed")
BUILT = """
import torch
kind = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
print(torch.__version__, "for", kind + ",", torch.cuda.device_count(), "GPUs")
"""
MODEL = """
from transformers import LlamaConfig, LlamaForCausalLM
sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=32, **sizes)).save_pretrained("model")
"""
"""Makes a folder with a tiny model, as `save_pretrained` writes it."""


class Stated(Exception):
    """A command that does not work with this torch, and says so in a sentence."""


class Failed(Exception):
    """A command that did something else than expected."""


# ------------------------------------------------------------------------------------------- an environment


class Environment:
    """A new environment with one version of torch, and a folder in which commands are typed."""

    def __init__(self, folder: Path, python: str) -> None:
        self.venv, self.work = folder / "venv", folder / "work"
        if not self.venv.exists():
            subprocess.run([python, "-m", "venv", str(self.venv)], check=True)
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        for file in (ROOT / "examples" / "house_prices.py", ROOT / "examples" / "reviews.py", ROOT / "bench" / KILLED):
            shutil.copy(file, self.work)

    def typed(self, *words: str, code: int = 0, cwd: Path | None = None, **variables: str) -> str:
        """Runs a program of the environment and returns what it prints. Raises if it ends in another way."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        path = f"{self.venv / 'bin'}{os.pathsep}{kept['PATH']}"
        given = {"OMP_NUM_THREADS": "1", "COLUMNS": "120", "HF_HUB_OFFLINE": "1", **variables}
        done = subprocess.run(
            [str(self.venv / "bin" / words[0]), *words[1:]],
            cwd=cwd or self.work,
            env={**kept, **given, "PATH": path},
            capture_output=True,
            text=True,
        )
        if done.returncode == code:
            return done.stdout
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()] or ["nothing printed"]
        if done.returncode == 2 and "Traceback" not in done.stderr and "needs torch" in lines[-1]:
            raise Stated(lines[-1].partition(": ")[2])
        raise Failed(f"{' '.join(words)}: exit {done.returncode}, not {code}: {' / '.join(lines[-6:])}")

    def surefoot(self, *words: str, code: int = 0, **variables: str) -> str:
        return self.typed("surefoot", *words, code=code, **variables)

    def torch(self) -> str:
        """The torch that is installed, for what it was built, and the GPUs that it sees."""
        return self.typed("python", "-c", BUILT).strip()

    def packages(self) -> dict[str, str]:
        frozen = self.typed("pip", "list", "--format", "freeze").split()
        return dict(line.split("==") for line in frozen if re.match("(torch|transformers|peft|surefoot|numpy)==", line))


def _holds(printed: str, *wanted: str) -> None:
    for each in wanted:
        if each not in printed:
            raise Failed(f"{each!r} was not printed: {printed[-300:]}")


# ------------------------------------------------------------------------------------------- the cells


def install(here: Environment) -> str:
    """surefoot is installed beside the torch that is there, which stays."""
    before = here.torch()
    here.typed("pip", "install", "--quiet", "--no-cache-dir", f"{ROOT}[report]")
    here.typed("pip", "check")
    where = here.typed("python", "-c", "import surefoot; print(surefoot.__file__)")
    _holds(where, str(here.venv))
    here.typed("pip", "install", "--quiet", "--no-cache-dir", "transformers", "peft")
    if (after := here.torch()) != before:
        raise Failed(f"pip replaced torch {before} by {after}")
    return after


def watch(here: Environment) -> str:
    """The README's example is named; nothing is found in it once it is fixed."""
    said = here.surefoot("watch", "house_prices.py", code=1)
    _holds(said, "error broadcast-loss", "house_prices.py:18")
    buggy = (here.work / "house_prices.py").read_text()
    (here.work / "fixed.py").write_text(buggy.replace("model(batch) -", "model(batch).squeeze(1) -"))
    said = here.surefoot("watch", "fixed.py")
    if "broadcast-loss" in said:
        raise Failed("the fixed script is still reported")
    return "broadcast-loss"


def look(here: Environment) -> str:
    _holds(here.surefoot("look", "reviews.py"), "one step", "64x64 float32")
    return ""


def check(here: Environment) -> str:
    said = here.surefoot("check", "reviews.py")
    _holds(said, "nothing found by")
    return said.strip()


def explain(here: Environment) -> str:
    """A run that exceeds a memory limit is explained."""
    small = ("cruncher", "width=64", "layers=3", "samples=128")
    here.surefoot("train", *small, "--memory-limit", "100KiB", "--run", "runs/memory", code=1)
    _holds(here.surefoot("explain", "runs/memory"), "out of memory in forward", "Fix: ")
    return ""


def _planned(here: Environment, *words: str) -> str:
    plan = json.loads(here.surefoot("plan", *TINY, *words, "--json"))
    return f"{plan['steady']['peak']['peak_bytes']:,} bytes"


def plan_one(here: Environment) -> str:
    return _planned(here, "--on", "h100-sxm")


def plan_fsdp(here: Environment) -> str:
    return _planned(here, "dp_shard=2", "global_batch_tokens=8192", "--on", "2xh100-sxm")


def plan_ddp(here: Environment) -> str:
    return _planned(here, "dp_replicate=2", "global_batch_tokens=8192", "--on", "2xh100-sxm")


def plan_tp(here: Environment) -> str:
    return _planned(here, "tp=2", "global_batch_tokens=8192", "--on", "2xh100-sxm")


def train(here: Environment) -> str:
    """A run that is killed and resumed ends with the bits of one that was not."""
    here.surefoot("train", "reviews.py", "--run", RUN)
    here.surefoot("train", KILLED, "--run", "runs/whole")
    here.surefoot("train", KILLED, "--run", "runs/killed", code=-9, KILLED_IN="runs/killed")
    saved = sorted(path.name for path in here.work.glob("runs/killed/checkpoints/step-*"))
    _holds(here.surefoot("train", KILLED, "--run", "runs/killed"), "finished after 30 steps")
    weights = [(here.work / "runs" / run / "model.safetensors").read_bytes() for run in ("whole", "killed")]
    if weights[0] != weights[1]:
        raise Failed("a resumed run ended with other weights than one that was not killed")
    return f"killed when {saved[-1]} was there"


def profile(here: Environment) -> str:
    _holds(here.surefoot("profile", "reviews.py", "--run", RUN), "step")
    return ""


def report(here: Environment) -> str:
    here.surefoot("report", RUN, "--html", "report.html")
    if (size := (here.work / "report.html").stat().st_size) < 10_000:
        raise Failed(f"the report has {size} bytes")
    return ""


def exactness(here: Environment) -> str:
    """The self-test of doctor: a plan agrees with its step to the byte."""
    found = {each["name"]: each for each in json.loads(here.surefoot("doctor", "--json"))["tests"]}
    if not all(each["passed"] for each in found.values()) or not found["exactness"]["ran"]:
        raise Failed(f"doctor: {found}")
    return str(found["exactness"]["said"])


def finetune(here: Environment) -> str:
    """LoRA on a folder of transformers, trained and exported."""
    here.typed("python", "-c", MODEL)
    words = ("model=model", "method=lora", "rank=2", "context=16", "micro_batch_size=2", "max_steps=4")
    _holds(here.surefoot("train", "finetune", *words, "--run", "runs/tuned"), "finished after 4 steps")
    _holds(here.surefoot("export", "runs/tuned"), "runs/tuned/export/adapter")
    return ""


def export(here: Environment) -> str:
    said = here.surefoot("export", RUN, "reviews.py")
    _holds(said, "model.safetensors", "model.pt2")
    return ""


def quick_tier(here: Environment) -> str:
    """`pytest -m quick` of this checkout, with the surefoot that is installed."""
    here.typed("pip", "install", "--quiet", "--no-cache-dir", "pytest", "hypothesis", "pytest-xdist")
    words = ("-m", "pytest", "-m", "quick", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider")
    try:
        said = here.typed("python", *words, cwd=ROOT)
    except Failed as failed:
        raise Failed(str(failed)[-1500:]) from None
    return said.splitlines()[-1].strip("= ")


Cell = Callable[[Environment], str]
CELLS: dict[str, Cell] = {
    "install": install,
    "watch": watch,
    "look": look,
    "check": check,
    "plan 1 GPU": plan_one,
    "plan FSDP2": plan_fsdp,
    "plan DDP": plan_ddp,
    "plan TP": plan_tp,
    "exactness": exactness,
    "train, resume": train,
    "profile": profile,
    "report": report,
    "explain": explain,
    "finetune lora": finetune,
    "export": export,
}
TIER = "quick tier"


# ------------------------------------------------------------------------------------------- rows and the table


def row(version: str, folder: Path, python: str, cells: dict[str, Cell]) -> dict[str, Any]:
    """Installs a version of torch and fills cells of its row."""
    here, began = Environment(folder, python), time.perf_counter()
    here.typed("pip", "install", "--quiet", "--no-cache-dir", "--no-compile", f"torch=={version}")
    found = {name: _cell(name, cell, here) for name, cell in cells.items()}
    packages, minutes = here.packages(), (time.perf_counter() - began) / 60
    return {"torch": here.torch(), "packages": packages, "minutes": round(minutes, 1), "cells": found}


def _cell(name: str, cell: Cell, here: Environment) -> dict[str, str]:
    began = time.perf_counter()
    try:
        found = {"is": "ok", "said": cell(here)}
    except Stated as stated:
        found = {"is": "stated", "said": str(stated)}
    except (Failed, OSError, KeyError, ValueError) as failed:
        found = {"is": "failed", "said": f"{type(failed).__name__}: {failed}"}
    print(f"  {name:14} {time.perf_counter() - began:5.0f} s  {found['is']}: {found['said']}", flush=True)
    return found


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The matrix as Markdown: a row per torch, and the sentences below it."""
    columns = [*CELLS, TIER]
    lines = [f"| torch | {' | '.join(columns)} |", "|" + "---|" * (1 + len(columns))]
    notes = dict[str, int]()
    for name, each in rows.items():
        shown = []
        for column in columns:
            cell = each["cells"].get(column, {"is": "-"})
            number = notes.setdefault(cell["said"], len(notes) + 1) if cell["is"] in ("stated", "failed") else 0
            shown.append(f"{cell['is']} {number}" if number else cell["is"])
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join([*lines, "", *(f"{number}. {said}" for said, number in notes.items())])


def differing(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The plans whose bytes are not the same in all rows."""
    found = []
    for name in (each for each in CELLS if each.startswith("plan")):
        cells = [row["cells"][name] for row in rows.values() if name in row["cells"]]
        said = {cell["said"] for cell in cells if cell["is"] == "ok"}
        if len(said) > 1:
            found.append(f"{name}: {', '.join(sorted(said))}")
    return found


def main() -> None:
    asked = _asked()
    rows: dict[str, dict[str, Any]] = {}
    if asked.out is not None and asked.out.exists():
        rows = json.loads(asked.out.read_text(encoding="utf-8"))["rows"]
    for version in asked.versions:
        with tempfile.TemporaryDirectory(prefix="torch-matrix-") as made:
            folder = Path(asked.folder or made, version)
            folder.mkdir(parents=True, exist_ok=True)
            python = subprocess.check_output([asked.python, "-c", "import sys; print(*sys.version_info[:2], sep='.')"])
            name = f"{version}, Python {python.decode().strip()}"
            print(name, flush=True)
            cells = CELLS | ({TIER: quick_tier} if version in asked.tier else {})
            wanted = {each: cell for each, cell in cells.items() if each in ("install", *(asked.only or cells))}
            found = row(version, folder, asked.python, wanted)
            found["cells"] = rows.get(name, {"cells": {}})["cells"] | found["cells"]
            rows[name] = found
        if asked.out is not None:
            write_record(asked.out, {"rows": rows})
    print(table(rows))
    print("planned bytes differ:" if differing(rows) else "planned bytes are the same in all rows", *differing(rows))
    cells = [cell["is"] for each in rows.values() for cell in each["cells"].values()]
    counts = " ".join(f"{kind}={cells.count(kind)}" for kind in ("ok", "stated", "failed"))
    print(f"RESULT versions={len(rows)} cells={len(cells)} {counts}")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_const", dest="versions", const=[QUICK], help=f"torch {QUICK} alone")
    parser.add_argument("--versions", nargs="+", default=VERSIONS)
    parser.add_argument("--tier", nargs="+", default=(), metavar="VERSION")
    parser.add_argument("--only", nargs="+", metavar="CELL", help="fill these cells alone")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environments")
    parser.add_argument("--folder", type=Path, help="keep environments here; one that is there is used again")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
