"""finetune: a small real fine-tune, preferences, adapters in plain peft, and runs that are killed.

    python bench/finetune.py [--quick] [--only preferences] [--kills 50] [--out FILE]

transfer  A byte-level llama learns Python's sources. Then each method goes on with Python's reference, in English:
          held-out bits per byte of the second text before and after, and the bytes that a step holds.
peft      Adapters that `export` wrote, read by peft in a process that cannot import surefoot: are the logits equal?
preferences   DPO on planted preferences (`planted_preferences.py`): margin and accuracy on held-out pairs, and kills.
kills     Runs of lora and qlora, killed with `kill -9` at random moments: the last checkpoint, the weights and the log
          must be the same, to the bit.

Both texts come with Python, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from kills import Kind
from orphans import adopt
from planted_preferences import CONTEXT as PAIR_CONTEXT
from planted_preferences import write_corpus, write_model
from recipe_kills import STEPS, killed
from record import write_record

import surefoot
from surefoot import Run, load_recipe
from surefoot.data.tokenize import tokenize
from surefoot.exports.merge import merge
from surefoot.training.reference import reference

CONTEXT, BATCH = 128, 16
METHODS = ("full", "lora", "dora", "qlora", "frozen")
PLAIN = """
import sys, torch
sys.modules["surefoot"] = None
import peft, transformers
base, adapter, program, bits = sys.argv[1:]
four = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
given = {"quantization_config": four} if bits == "4" else {}
model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, **given)
model = peft.PeftModel.from_pretrained(model, adapter).eval()
tokens = torch.arange(256).view(2, 128)
with torch.no_grad():
    here, there = model(input_ids=tokens).logits, torch.export.load(program).module()(input_ids=tokens)["logits"]
print((here - there).abs().max().item())
"""


# ------------------------------------------------------------------------------------------- texts and models


def corpora(folder: Path, *, quick: bool) -> dict[str, Path]:
    """Python's sources and Python's reference in English, as bytes, with a held-out part."""
    import pydoc_data.topics
    import sysconfig

    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[: 40 if quick else 200]
    texts = {"code": [each.read_text(encoding="utf-8", errors="replace") for each in sources]}
    texts["english"] = [text for _, text in sorted(pydoc_data.topics.topics.items())]
    made = {}
    for name, documents in texts.items():
        (folder / name).mkdir()
        for number, text in enumerate(documents):
            (folder / name / f"{number:04}.txt").write_text(text, encoding="utf-8")
        made[name] = folder / f"{name}-tokens"
        tokenize([str(folder / name)], made[name], tokenizer="bytes", held_out=0.1)
    return made


def config(folder: Path, *, quick: bool) -> Path:
    """The config of a small llama whose tokens are bytes."""
    from transformers import LlamaConfig

    width, layers = (64, 2) if quick else (128, 4)
    LlamaConfig(
        vocab_size=257,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=256,
        eos_token_id=256,
    ).save_pretrained(folder / "config")
    return folder / "config"


def tuned(model: Path, data: Path, folder: Path, steps: int, *words: str) -> Run:
    given = [f"model={model}", f"data={data}", f"context={CONTEXT}", f"micro_batch_size={BATCH}", f"max_steps={steps}"]
    recipe = load_recipe("finetune", [*given, "save_every=none", *words])
    return surefoot.train(
        replace(recipe, evaluation_batches=None, evaluate_every=steps), path=str(folder), plan=surefoot.plan(recipe)
    )


def held_out_bits(run: Run) -> float:
    """Bits per byte at the last evaluation."""
    last = [row for row in run.rows() if row.evaluation_loss is not None][-1]
    return last.evaluation_loss / torch.log(torch.tensor(2.0)).item() / (run.bytes_per_token or 1.0)


# ------------------------------------------------------------------------------------------- transfer


def transfer(folder: Path, *, quick: bool) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of the first model, and what each method made of the second text."""
    texts, steps = corpora(folder, quick=quick), 120 if quick else 300
    first = tuned(
        config(folder, quick=quick), texts["code"], folder / "first", steps, "method=full", "init_from=none", "lr=2e-3"
    )
    base = Path(merge(first.path).folder)
    before = held_out_bits(tuned(base, texts["english"], folder / "before", 1, "method=full", "lr=0"))
    print(f"first model, {first.parameters:,} parameters: {held_out_bits(first):.3f} bits per byte of held-out code")
    print(f"on held-out English, before: {before:.3f}")
    rows = []
    for method in METHODS:
        lr = {"full": "5e-4", "frozen": "2e-3"}.get(method, "2e-3")
        run = tuned(base, texts["english"], folder / method, steps // 2, f"method={method}", f"lr={lr}", "rank=8")
        row = {"method": method, "before": before, "after": held_out_bits(run), **bytes_of(run)}
        rows.append(row)
        print(
            f"{method:8} {row['after']:.3f}  trained {row['trained']:>9,}  gradients and optimizer "
            f"{row['gradients'] + row['optimizer']:>10,} B  planned peak {row['planned_peak']:>11,} B",
            flush=True,
        )
    return base, rows


def bytes_of(run: Run) -> dict[str, int]:
    """What the run held from step to step, by account, beside its plan."""
    from surefoot.records.plan import read_plan

    plan = read_plan(Path(run.path))
    assert plan is not None
    held = run.memory_bytes
    trained = next(line for line in plan.choices if line.startswith("trained: ")).split()[1]
    return {
        "trained": int(trained.replace(",", "")),
        "planned_peak": plan.steady.peak.peak_bytes,
        **{name: int(held.get(name, 0)) for name in ("parameters", "gradients", "optimizer", "buffers")},
    }


# ------------------------------------------------------------------------------------------- peft, kills


def in_plain_peft(base: Path, folder: Path) -> dict[str, float]:
    """The largest difference of logits by method."""
    found = {}
    for method in ("lora", "dora", "qlora"):
        record = surefoot.export(str(folder / method))
        words = [str(base), record.adapter, record.program, "4" if method == "qlora" else "32"]
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", PLAIN, *words], capture_output=True, text=True)
        found[method] = float(done.stdout.split()[-1]) if done.returncode == 0 else float("inf")
        print(f"{method:8} in plain peft: largest difference of logits {found[method]:g}")
        if done.returncode:
            print(done.stderr[-500:])
    return found


def kill_all(base: Path, folder: Path, kills: int) -> list[str]:
    """What was wrong after runs of adapters were killed."""
    wrong = list[str]()
    for method in ("lora", "qlora"):
        words = [f"model={base}", f"data={folder / 'english-tokens'}", "context=32", "micro_batch_size=2", "rank=4"]
        wrong += kill_one(method, [*words, f"method={method}", "dropout=0.1"], folder, kills)
    return wrong


def kill_one(name: str, words: list[str], folder: Path, kills: int) -> list[str]:
    """What was wrong after a run was killed so many times."""
    adopt()
    torch.set_num_threads(1)
    recipe = load_recipe("finetune", [*words, f"max_steps={STEPS}", "save_every=5"])
    began, kind = time.perf_counter(), Kind(name, True, replace(recipe, evaluate_every=6))
    found = list(killed(kind, folder / f"killed-{name}", kills, random.Random(25)))
    print(f"{name:8} killed {kills} times, wrong {len(found)}, {time.perf_counter() - began:.0f} s", flush=True)
    return found


def preferences(folder: Path, kills: int) -> tuple[dict[str, list[dict[str, float]]], list[str]]:
    """The scores on held-out pairs by method, evaluation by evaluation, and what was wrong after kills."""
    model = write_model(folder / "preferring")
    data = write_corpus(folder / "pairs", model, 400)
    reference(str(data), model=str(model))
    words = [f"model={model}", f"data={data}", "loss=dpo", f"context={PAIR_CONTEXT}"]
    scores, wrong = {}, list[str]()
    for method, rate in (("lora", "1e-3"), ("full", "1e-4")):
        method_words = [*words, f"method={method}", f"lr={rate}", "rank=8"]
        recipe = load_recipe("finetune", [*method_words, "micro_batch_size=8", "max_steps=100", "save_every=none"])
        recipe = replace(recipe, evaluation_batches=None)
        run = surefoot.train(recipe, path=str(folder / f"dpo-{method}"))
        scores[method] = [{"step": row.step, **row.metrics} for row in run.rows() if row.metrics]
        for each in scores[method][:: max(1, len(scores[method]) // 4)]:
            print(
                f"dpo {method:5} step {each['step']:>3}  accuracy {each['accuracy']:.3f}  margin {each['margin']:.3f}  "
                f"rewards {each['reward_chosen']:+.3f} {each['reward_rejected']:+.3f}",
                flush=True,
            )
        wrong += kill_one(f"dpo-{method}", [*method_words, "micro_batch_size=2"], folder, kills)
    return scores, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller model, fewer steps, 2 kills of each")
    parser.add_argument("--kills", type=int, default=25, help="of each of the four kinds of runs")
    parser.add_argument("--only", choices=["preferences"], help="leave out the rest")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    kills = 2 if arguments.quick else arguments.kills
    with tempfile.TemporaryDirectory() as here:
        folder = Path(here)
        scores, wrong = preferences(folder, kills)
        if arguments.only:
            print("\n".join(wrong))
            last = {method: f"{each[-1]['accuracy']:.3f}" for method, each in scores.items()}
            print(f"RESULT dpo_lora={last['lora']} dpo_full={last['full']} kills={2 * kills} wrong={len(wrong)}")
            return 1 if wrong else 0
        base, rows = transfer(folder, quick=arguments.quick)
        logits = in_plain_peft(base, folder)
        wrong += kill_all(base, folder, kills)
        count = 4 * kills
    print("\n".join(wrong))
    lora, full = (next(row for row in rows if row["method"] == name) for name in ("lora", "full"))
    saved = 1 - (lora["gradients"] + lora["optimizer"]) / (full["gradients"] + full["optimizer"])
    result = (
        f"RESULT before={lora['before']:.3f} lora={lora['after']:.3f} full={full['after']:.3f} "
        f"lora_saves_of_gradients_and_optimizer={saved:.3f} logits_equal={sum(not each for each in logits.values())} "
        f"of={len(logits)} kills={count} wrong={len(wrong)}"
    )
    if arguments.out:
        write_record(
            arguments.out,
            {"result": result, "rows": rows, "preferences": scores, "logits": logits, "kills": count, "wrong": wrong},
        )
    print(result)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
