"""How long `surefoot plan` takes and how much memory, with alike blocks reused and with every block run.

Whole commands, each in a process of its own, one after the other: with reuse, in full, with reuse again. Their plans
must be the same, but for what they say about which blocks were run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "num_key_value_heads": 8}
SHAPES = {
    "Llama 3 8B": (32, 4096, 14336, 32),
    "Llama 3 70B": (80, 8192, 28672, 64),
    "Llama 3 405B": (126, 16384, 53248, 128),
}
GPT2 = "gpt layers=12 width=768 heads=12 context=1024 micro_batch_size=1 global_batch_tokens=1024"
MODELS = ("GPT-2 124M", *SHAPES)


def measured(names: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each model, as it is found."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            words = command(name, Path(folder))
            reuse, full, again = run([*words]), run([*words, "--no-reuse"]), run([*words])
        plans = [each.pop("plan") for each in (reuse, full, again)]
        blocks = plans[0]["blocks"]
        for plan in plans:
            del plan["blocks"]
        yield {
            "model": name,
            "blocks": blocks,
            "same": plans[0] == plans[1] == plans[2],
            "peak_bytes": plans[1]["steady"]["peak"]["peak_bytes"],
            "full": full,
            "reuse": min(reuse, again, key=lambda each: each["cpu_seconds"]),
        }


def command(name: str, folder: Path) -> list[str]:
    if name not in SHAPES:
        return GPT2.split()
    layers, hidden, intermediate, heads = SHAPES[name]
    shape = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": intermediate}
    config = {**LLAMA, **shape, "num_attention_heads": heads, "max_position_embeddings": 8192}
    (folder / "config.json").write_text(json.dumps(config))
    return ["--hf", str(folder), "context=8192"]


def run(words: list[str]) -> dict[str, Any]:
    """One command: seconds on the wall, seconds that processors worked, the most memory held, and the plan."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen([sys.executable, "-m", "surefoot", "plan", *words, "--json"], stdout=out)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        if child.returncode:
            raise SystemExit(f"surefoot plan {' '.join(words)} failed with {child.returncode}")
        out.seek(0)
        plan = json.load(out)
    del plan["knobs"], plan["about"]  # they name the folder
    rss = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "rss_bytes": rss, "plan": plan}


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each model, for docs/measured/plan-speed.md."""
    lines = [
        "| model | blocks | in full: s | CPU s | GiB | reused: s | CPU s | GiB | same |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        cells = [row["model"], row["blocks"] or "all run"]
        for way in ("full", "reuse"):
            found = row[way]
            cells += [f"{found['seconds']:.1f}", f"{found['cpu_seconds']:.1f}", f"{found['rss_bytes'] / 2**30:.2f}"]
        lines.append("| " + " | ".join([*cells, "yes" if row["same"] else "NO"]) + " |")
    return "\n".join(lines)


def result(rows: list[dict[str, Any]]) -> str:
    """The last line: how many plans are the same, and the slowest and largest with reuse."""
    slowest = max(row["reuse"]["cpu_seconds"] for row in rows)
    largest = max(row["reuse"]["rss_bytes"] for row in rows) / 2**30
    gain = max(row["full"]["cpu_seconds"] / row["reuse"]["cpu_seconds"] for row in rows)
    same = sum(row["same"] for row in rows)
    return f"RESULT models={len(rows)} same={same} cpu_seconds={slowest:.1f} rss_gib={largest:.2f} gain={gain:.2f}"
