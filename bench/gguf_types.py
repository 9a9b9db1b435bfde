"""gguf_types: a trained Llama in each type of llama.cpp's own quantiser, run in llama.cpp: bytes, rounding, perplexity.

    python bench/gguf_types.py [--quick] [--steps N] [--tokens N] [--out FILE] [--page FILE]

The built-in llama learns the bytes of files of Python's standard library. Files that it did not learn are the held-out
part of its corpus. `surefoot export --format gguf --quantize KIND` writes each type. The perplexity of the float file
is also computed by torch, on the same tokens. `llama-quantize` on the PATH makes the files; without it, the library of
npm that tests/llama_quantiser.py names does. `--quick` trains 20 steps and takes the two types that most people run.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from record import machine, write_record

ROOT = Path(__file__).parent.parent
QUICK = ("Q8_0", "Q4_K_M")
FILES, MOST_BYTES = 60, 40_000
CLOSE = 1e-5
"""How far the perplexity of the float file may be from torch's, relative."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--tokens", type=int, default=4096, help="how many tokens llama.cpp predicts for a perplexity")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--page", type=Path, default=None, help="write the table as Markdown")
    asked = parser.parse_args()
    steps = asked.steps or (20 if asked.quick else 600)
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), steps, 256 if asked.quick else asked.tokens, quick=asked.quick)
    found |= {"date": f"{datetime.now(UTC):%Y-%m-%d}", "seconds": round(time.time() - began)}
    if asked.out:
        write_record(asked.out, found)
    if asked.page:
        write_page(asked.page, found)
    print(result(found))
    sys.exit(0 if is_good(found) else 1)


def measured(here: Path, steps: int, tokens: int, *, quick: bool) -> dict[str, Any]:
    """The run, and one row for each type."""
    import surefoot
    from surefoot.data.tokenize import tokenize
    from surefoot.exports import gguf_kinds
    from surefoot.exports.format_table import GGUF_KINDS

    said = put_quantiser_on_path(here / "bin")
    tokenize([f"text={text(here / 'text')}/*.txt"], here / "tokens", tokenizer="bytes", held_out=0.1)
    knobs = ["context=128", "micro_batch_size=4", f"max_steps={steps}", f"corpus={here}/tokens"]
    run = surefoot.train(surefoot.load_recipe("llama", knobs), path=str(here / "run"))
    gguf_kinds.SCORED = tokens
    made = surefoot.export(run.path, formats=["gguf"], quantize=QUICK if quick else GGUF_KINDS)
    rows = {
        each.kind: {
            "bytes": each.bytes,
            "bits": 8 * each.bytes / run.parameters,
            "types": each.types,
            "rounding": each.rounding,
            "difference": each.difference,
            "before": each.before,
            "after": each.after,
            "reason": each.reason or each.no_score,
        }
        for each in made.quantised_gguf
    }
    return {
        "quantiser": said,
        "steps": steps,
        "loss": run.last_loss,
        "parameters": run.parameters,
        "float_bytes": made.formats[0].bytes,
        "data": made.quantised_gguf[0].data,
        "tokens": made.quantised_gguf[0].tokens,
        "in_torch": in_torch(run),
        "rows": rows,
    }


def in_torch(run: Any) -> float:
    """The perplexity of the trained model on the same tokens."""
    import surefoot
    from surefoot.exports.formats import Job
    from surefoot.exports.gguf_kinds import _texts
    from surefoot.exports.trained import trained_model
    from surefoot.world.world import World

    recipe = surefoot.load_recipe(run.target, [f"{k}={v}" for k, v in run.knobs.items() if v is not None])
    losses: list[torch.Tensor] = []
    with torch.no_grad():
        network = trained_model(recipe, World(), run.weights)
        for text in _texts(Job(recipe, network, None, None), network, World())[1]:
            logits = network(torch.tensor([text[:-1]]))[0].double()
            losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(text[1:]), reduction="none"))
    return math.exp(torch.cat(losses).mean().item())


def put_quantiser_on_path(beside: Path) -> str:
    """What makes the files."""
    sys.path.insert(0, str(ROOT))
    from tests.llama_quantiser import folder_of_quantiser, path_with

    if shutil.which("llama-quantize"):
        return "the program llama-quantize"
    folder = folder_of_quantiser(beside)
    if folder is None:
        raise SystemExit("no quantiser: put llama-quantize on the PATH, or see tests/llama_quantiser.py")
    os.environ["PATH"] = path_with(folder)
    return "llama.cpp's library as npm's @node-llama-cpp/linux-x64 has it, called as llama-quantize calls it"


def text(folder: Path) -> Path:
    """Files of the standard library, each of limited size."""
    folder.mkdir()
    files = sorted(each for each in Path(sysconfig.get_path("stdlib")).glob("*.py") if each.stat().st_size > 10_000)
    for each in files[:FILES]:
        (folder / f"{each.stem}.txt").write_bytes(each.read_bytes()[:MOST_BYTES])
    return folder


def is_good(found: dict[str, Any]) -> bool:
    """Whether each type was written and run, and the float file is the model."""
    rows = found["rows"].values()
    return all(each["after"] and abs(each["before"] / found["in_torch"] - 1) < CLOSE for each in rows)


def result(found: dict[str, Any]) -> str:
    rows = found["rows"]
    shown = ", ".join(
        f"{kind} {row['after']:.5g} ({row['after'] / row['before'] - 1:+.2%})" if row["after"] else f"{kind} none"
        for kind, row in rows.items()
    )
    first = next(iter(rows.values()))
    return (
        f"RESULT gguf_types: perplexity in llama.cpp on {found['tokens']:,} held-out tokens: float32 "
        f"{first['before']}, in torch {found['in_torch']}; {shown}; {found['seconds']} s"
    )


def write_page(file: Path, found: dict[str, Any]) -> None:
    """docs/measured/gguf.md."""
    here = machine()
    first = next(iter(found["rows"].values()))
    rows = [
        f"| {kind} | {row['bytes'] / 1024:,.0f} | {row['bits']:.2f} | {row['rounding']:.2g} | {row['difference']:.2g} "
        f"| {row['after']:.4f} | {row['after'] / row['before'] - 1:+.2%} | "
        f"{', '.join(f'{count} {name}' for name, count in row['types'].items())} |"
        for kind, row in found["rows"].items()
    ]
    lines = [
        "# GGUF in fewer bits",
        "",
        f"`python bench/gguf_types.py --page docs/measured/gguf.md` on {found['date']}, on {here['cores']} cores of "
        f"{here['cpu']}, torch {here['torch']}, Python {here['python']}; {found['seconds']} s.",
        "",
        f"The built-in llama, {found['parameters']:,} parameters, learned bytes of Python's standard library for "
        f"{found['steps']} steps, to a loss of {found['loss']:.3f}. The quantiser is {found['quantiser']}. The "
        f"perplexity is llama.cpp's (xllamacpp) on {found['tokens']:,} tokens of {found['data']}: of files that the "
        "model did not learn. Keys and values are in float32.",
        "",
        "| type | KiB | bits per parameter | largest rounding of a tensor | difference of log-probabilities "
        "| perplexity | change | tensors |",
        "|---|---|---|---|---|---|---|---|",
        f"| float32 | {found['float_bytes'] / 1024:,.0f} | {8 * found['float_bytes'] / found['parameters']:.2f} | 0 "
        f"| - | {first['before']:.4f} | | |",
        *rows,
        "",
        f"In torch, the perplexity of the model on the same tokens is {found['in_torch']:.4f}; llama.cpp's of the "
        f"float file differs by {abs(first['before'] / found['in_torch'] - 1):.1e} of it.",
        "",
        "The rounding is the largest difference of a tensor to the model's, as a share of its norm. Feed-forward "
        "layers have 704 columns, no multiple of 256, so llama.cpp gives some of them another type than asked for. "
        "The model is small and its training was short, with one seed: a model that learned more has more to lose. "
        "The export measures yours.",
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
