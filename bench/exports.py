"""exports: every model in every format, run and compared, or the reason why not; and round trips without surefoot.

    python bench/exports.py [--quick] [--formats pt2,onnx] [--models gpt,vae] [--parts cells,quantised] [--onto FILE]
        [--out FILE] [--page FILE]

Each model trains a few steps. Each cell is the largest difference between outputs of the trained model and of what was
written, run where it will be run. Then processes that never import surefoot load what was written: transformers and
llama.cpp must make the same 200 greedy tokens, onnxruntime the same logits. `evaluate` must give exported files the
run's figures.
The column `adapter` is peft's folder. Then the weights of some models are written in int8 and scored.
`--quick` takes three models and leaves out AOTInductor, which compiles for a minute or more for each model. `--onto`
takes what `--models`, `--formats` and `--parts` leave out from an earlier record; the page names what was measured
again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from record import machine, write_record

from exports_models import recipes

FORMATS = ("safetensors", "adapter", "pt2", "hf", "onnx", "gguf", "aoti")
PTE = ("pte",) if importlib.util.find_spec("executorch") else ()
"""ExecuTorch is measured where it is installed: `--formats pte --onto RECORD` there."""
PARTS = ("cells", "round_trips", "scores", "quantised")
QUANTISED = ("gpt", "llama", "fashion")
QUICK_MODELS, QUICK_FORMATS = ("gpt", "sentiment", "packed lstm tagger"), ("safetensors", "pt2", "hf", "onnx")
TOKENS = 200
GREEDY = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
model, tokenizer = AutoModelForCausalLM.from_pretrained(sys.argv[1]), AutoTokenizer.from_pretrained(sys.argv[1])
given = tokenizer("def main", return_tensors="pt")
made = model.generate(**given, do_sample=False, max_new_tokens=int(sys.argv[2]), eos_token_id=-1, pad_token_id=0)
assert "surefoot" not in sys.modules
print(json.dumps(made[0].tolist()))
"""
LOGITS = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
made = session.run(None, {session.get_inputs()[0].name: numpy.load(sys.argv[2])})[0]
assert "surefoot" not in sys.modules and "torch" not in sys.modules
numpy.save(sys.argv[3], made)
"""
BY_LLAMA_CPP = """
import json, sys, urllib.request, xllamacpp
how = xllamacpp.CommonParams()
how.model.path, how.n_ctx, how.n_parallel, how.warmup = sys.argv[1], 512, 1, False
how.cache_type_k = how.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
how.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(how)
given = {"prompt": "def main", "n_predict": int(sys.argv[2]), "temperature": 0}
given |= {"ignore_eos": True, "return_tokens": True}
address, kind = server.listening_address + "/completion", {"Content-Type": "application/json"}
said = json.load(urllib.request.urlopen(urllib.request.Request(address, json.dumps(given).encode(), kind)))
assert "surefoot" not in sys.modules and "torch" not in sys.modules
print("\\n" + json.dumps(said["tokens"]))
"""


def main() -> None:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--formats", default="")
    parser.add_argument("--models", default="")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--onto", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--page", type=Path, default=None, help="write the tables as Markdown")
    asked = parser.parse_args()
    formats = tuple(filter(None, asked.formats.split(","))) or (QUICK_FORMATS if asked.quick else (*FORMATS, *PTE))
    chosen = tuple(filter(None, asked.models.split(","))) or (QUICK_MODELS if asked.quick else None)
    parts, found = asked.parts.split(","), {part: {} for part in PARTS} | {"seconds": 0, "again": {}}
    found |= {"date": f"{datetime.now(UTC):%Y-%m-%d}", "formats": formats}
    if asked.onto:
        found |= json.loads(asked.onto.read_text())
        found["formats"] = tuple(dict.fromkeys((*found["formats"], *formats)))
    began, before = time.time(), found["seconds"]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        runs = trained(here, chosen)
        if asked.onto:
            what = ", ".join((*(formats if "cells" in parts else ()), *(each for each in parts if each != "cells")))
            when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
            found["again"] |= {f"{name} ({what.replace('_', ' ')})": when for name in runs}
        for name, (run, recipe) in runs.items() if "cells" in parts else ():
            row = {each: cell(run, recipe, each, here / "out" / name) for each in formats}
            found["cells"][name] = {**found["cells"].get(name, {}), **row}
            if asked.out:
                write_record(asked.out, found)
        if "round_trips" in parts:
            texts = [name for name in ("gpt", "llama") if name in runs]
            found["round_trips"] |= {name: round_trip(runs[name][0], here / "trip" / name) for name in texts}
        if "scores" in parts:
            found["scores"] |= {name: scores(*runs[name], here) for name in ("gpt", "fashion") if name in runs}
        if "quantised" in parts and importlib.util.find_spec("torchao"):
            found["quantised"] |= {name: quantised(*runs[name], here) for name in QUANTISED if name in runs}
    found["seconds"] = before + round(time.time() - began)
    if asked.out:
        write_record(asked.out, found)
    if asked.page:
        write_page(asked.page, found)
    print(result(found))
    sys.exit(0 if is_good(found) else 1)


def trained(here: Path, only: tuple[str, ...] | None) -> dict[str, tuple[Any, Any]]:
    """A finished run of each model, with its recipe."""
    import surefoot

    made = {}
    (here / "made").mkdir()
    for name, build in recipes(here / "made").items():
        if only is None or name in only:
            recipe = build()
            made[name] = surefoot.train(recipe, path=str(here / "runs" / name)), recipe
    return made


def cell(run: Any, recipe: Any, form: str, folder: Path) -> dict[str, Any]:
    """One format of one model: its difference, tolerance and size, or a reason."""
    import surefoot
    from surefoot.errors import ParityError

    began = time.time()
    written = "safetensors" if form == "adapter" else form
    try:
        made = surefoot.export(run.path, recipe, to=str(folder / form), formats=[written])
    except ParityError as error:
        told: dict[str, Any] = {"wrong": str(error).replace(str(folder), "")}
    else:
        told = _of(made, form)
    print(f"{run.recipe or Path(run.path).name:12} {Path(run.path).name:24} {form:12} {told}", flush=True)
    return {**told, "seconds": round(time.time() - began, 1)}


def _of(made: Any, form: str) -> dict[str, Any]:
    if form == "safetensors":
        return {"difference": made.weights_difference, "tolerance": made.tolerance, "bytes": made.weights_bytes}
    if form == "adapter":
        if not made.adapter:
            return {"reason": "it has no adapters"}
        return {"difference": made.adapter_difference, "tolerance": made.tolerance, "bytes": made.adapter_bytes}
    if form == "pt2":
        if made.why_no_program:
            return {"reason": made.why_no_program}
        return {"difference": made.program_difference, "tolerance": made.tolerance, "bytes": made.program_bytes}
    (one,) = made.formats
    if one.reason:
        return {"reason": one.reason}
    fixed = " alone; " in one.note
    return {"difference": one.difference, "tolerance": one.tolerance, "bytes": one.bytes, "fixed": fixed}


def round_trip(run: Any, folder: Path) -> dict[str, Any]:
    """Greedy tokens of transformers and logits of onnxruntime, in processes without surefoot, beside ours."""
    import numpy

    import surefoot
    from surefoot.exports.decode import Decoder, Sampling
    from surefoot.exports.trained import trained_model
    from surefoot.world.world import World

    names = ["hf", "onnx", "gguf"]
    made = {each.format: each for each in surefoot.export(run.path, to=str(folder), formats=names).formats}
    theirs = json.loads(alone(GREEDY, made["hf"].path, str(TOKENS)).splitlines()[-1])
    prompt = list(b"def main")
    recipe = surefoot.load_recipe(run.target, [f"{name}={value}" for name, value in run.knobs.items()])
    with torch.no_grad():
        model = trained_model(recipe, World(), run.weights)
        context = recipe.tokens_per_sample

        def ours(cached: bool) -> list[int]:
            decoder = Decoder(model, prompt, context=context, pick=Sampling(temperature=0).picker(), cached=cached)
            return list(islice(decoder, TOKENS))

        kept, plain = ours(True), ours(False)
        tokens = torch.randint(0, 256, (3, context), generator=torch.Generator().manual_seed(5))
        logits = model(tokens).numpy()
    gguf = made["gguf"].path  # empty where the model has no such form
    by_llama_cpp = json.loads(alone(BY_LLAMA_CPP, gguf, str(TOKENS)).splitlines()[-1]) if gguf else None
    numpy.save(folder / "in.npy", tokens.numpy())
    alone(LOGITS, made["onnx"].path, str(folder / "in.npy"), str(folder / "out.npy"))
    got = numpy.load(folder / "out.npy")
    return {
        "tokens": TOKENS,
        "equal_to_transformers": same(kept, theirs[len(prompt) :]),
        "equal_to_llama_cpp": None if by_llama_cpp is None else same(kept, by_llama_cpp),
        "cached_equal_to_uncached": same(kept, plain),
        "onnxruntime_difference": float(abs(got - logits).max() / abs(logits).max()),
        **speeds(model, made["hf"].path, prompt, context),
    }


def same(here: list[int], there: list[int]) -> int:
    """How many tokens are equal before the first that differs."""
    return next((place for place, pair in enumerate(zip(here, there, strict=True)) if pair[0] != pair[1]), len(here))


def speeds(model: Any, folder: str, prompt: list[int], context: int) -> dict[str, float]:
    """Tokens per second of CPU time, ours and transformers', in turns; the best of three."""
    from transformers import AutoModelForCausalLM

    from surefoot.exports.decode import Decoder, Sampling

    other, best = AutoModelForCausalLM.from_pretrained(folder).eval(), {"ours": 0.0, "transformers": 0.0}
    given = torch.tensor([prompt])
    for _ in range(3):
        with torch.no_grad():
            began = time.process_time()
            list(islice(Decoder(model, prompt, context=context, pick=Sampling(temperature=0).picker()), 128))
            best["ours"] = max(best["ours"], 128 / (time.process_time() - began))
            began = time.process_time()
            other.generate(
                given,
                attention_mask=torch.ones_like(given),
                do_sample=False,
                max_new_tokens=128,
                eos_token_id=-1,
                pad_token_id=0,
            )
            best["transformers"] = max(best["transformers"], 128 / (time.process_time() - began))
    return {f"{name}_tokens_per_second": round(value) for name, value in best.items()}


def scores(run: Any, recipe: Any, here: Path) -> dict[str, Any]:
    """Loss and metrics of the run, of its safetensors and of its ONNX file."""
    import surefoot

    made = surefoot.export(run.path, recipe, to=str(here / "scored" / run.recipe), formats=["onnx"])
    data = "test" if run.recipe == "fashion" else str(text(here / "text"))
    found = {}
    for name, path in (("run", run.path), ("safetensors", made.weights), ("onnx", made.formats[0].path)):
        (score,) = surefoot.evaluate(path, recipe, data=data).scores
        found[name] = {"loss": score.loss, **score.metrics}
    return found


def quantised(run: Any, recipe: Any, here: Path) -> dict[str, Any]:
    """Bytes and figures of int8 weights, beside those of the run."""
    import surefoot

    data = "test" if run.recipe == "fashion" else str(text(here / "text"))
    found: dict[str, Any] = {}
    for kind in ("int8", "int8-dynamic"):
        to = str(here / "small" / run.recipe / kind)
        made = surefoot.export(run.path, recipe, to=to, formats=["safetensors"], quantize=kind)
        (score,) = surefoot.evaluate(made.quantised.path, recipe, data=data).scores
        found[kind] = {
            "bytes": made.quantised.bytes,
            "parameters": made.quantised.parameters / made.quantised.of_parameters,
            "figures": score.figures,
        }
    (score,) = surefoot.evaluate(run.path, recipe, data=data).scores
    return {"run": {"bytes": made.weights_bytes, "parameters": 0.0, "figures": score.figures}, **found}


def text(folder: Path) -> Path:
    """A little text that the model has not learned from."""
    folder.mkdir(exist_ok=True)
    (folder / "bench.txt").write_text(Path(__file__).read_text())
    return folder


def alone(code: str, *words: str) -> str:
    """Runs code in a process that has no path of this project."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, *words],
        capture_output=True,
        text=True,
        env={**env, "HF_HUB_OFFLINE": "1"},
        cwd="/",
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def agree(scored: dict[str, dict[str, float]]) -> bool:
    """Whether all figures agree in six digits."""
    first = scored["run"]
    return all(abs(each[name] - first[name]) <= 5e-7 * abs(first[name]) for each in scored.values() for name in first)


def is_good(found: dict[str, Any]) -> bool:
    cells = [each for row in found["cells"].values() for each in row.values()]
    trips = found["round_trips"].values()
    tokens = all(each["equal_to_transformers"] == each["cached_equal_to_uncached"] == TOKENS for each in trips)
    tokens &= all(each["equal_to_llama_cpp"] in (None, TOKENS) for each in trips)
    return not any("wrong" in each for each in cells) and tokens and all(map(agree, found["scores"].values()))


def result(found: dict[str, Any]) -> str:
    cells = [each for row in found["cells"].values() for each in row.values()]
    written = [each for each in cells if "difference" in each]
    wrong = sum("wrong" in each for each in cells)
    largest = max((each["difference"] for each in written), default=0.0)
    trips = ", ".join(f"{name} {each['equal_to_transformers']}" for name, each in found["round_trips"].items())
    six = sum(map(agree, found["scores"].values()))
    return (
        f"RESULT exports: {len(written)} of {len(cells)} cells written, {wrong} beyond their tolerance, the others "
        f"with a reason; largest difference {largest:.2g}; greedy tokens of {TOKENS} equal to transformers: "
        f"{trips}; figures of exported files equal in six digits: {six} of {len(found['scores'])}; {found['seconds']} s"
    )


def write_page(file: Path, found: dict[str, Any]) -> None:
    """The tables of docs/measured/exports.md."""
    here, formats = machine(), found["formats"]
    reasons: dict[str, int] = {}

    def shown(each: dict[str, Any] | None) -> str:
        if each is None:
            return "-"
        if "difference" in each:
            return (f"{each['difference']:.1e}" if each["difference"] else "0") + "*" * each.get("fixed", False)
        said = each.get("reason") or each["wrong"]
        return f"[{reasons.setdefault(said, len(reasons) + 1)}]"

    def of_llama_cpp(each: dict[str, Any]) -> str:
        return "no GGUF" if each["equal_to_llama_cpp"] is None else f"{each['equal_to_llama_cpp']} of {TOKENS}"

    rows = [
        f"| {name} | {' | '.join(shown(row.get(each)) for each in formats)} |" for name, row in found["cells"].items()
    ]
    trips = [
        f"| {name} | {each['equal_to_transformers']} of {TOKENS} | {of_llama_cpp(each)} | "
        f"{each['cached_equal_to_uncached']} of {TOKENS} | "
        f"{each['onnxruntime_difference']:.1e} | {each['ours_tokens_per_second']} | "
        f"{each['transformers_tokens_per_second']} |"
        for name, each in found["round_trips"].items()
    ]
    scored = [
        f"| {name} | {figure} | {' | '.join(f'{each[figure]:.9g}' for each in row.values())} |"
        for name, row in found["scores"].items()
        for figure in row["run"]
    ]
    small = [
        f"| {name} | {kind} | {each['parameters']:.0%} | {each['bytes'] / 1024:.1f} | {figure} | {value:.6g} | "
        f"{value - row['run']['figures'][figure]:+.2g} |"
        for name, row in found["quantised"].items()
        for kind, each in row.items()
        for figure, value in each["figures"].items()
        if figure in ("bits per byte", "accuracy")
    ]
    lines = [
        "# Exports",
        "",
        f"`python bench/exports.py --page docs/measured/exports.md` on {found['date']}, on "
        f"{here['cores']} cores of {here['cpu']}, torch {here['torch']}, Python {here['python']}; "
        f"all cells took {sum(each['seconds'] for row in found['cells'].values() for each in row.values()):.0f} s.",
        "",
        "## Models and formats",
        "",
        "Each cell is the largest difference between outputs of the trained model and of what was written, relative to "
        "the largest output, after running it; of `gguf`, between log-probabilities in llama.cpp. The tolerance is "
        "1e-5, and 1e-4 where adapters are merged (hf, gguf). A number in brackets is a reason, below; a dash is a "
        "cell that was not measured; a star is a file for the sizes of the example call alone.",
        "",
        f"| model | {' | '.join(formats)} |",
        f"|---|{'---|' * len(formats)}",
        *rows,
        "",
        *(f"Measured apart from the rest, on {when}: {name}.\n" for name, when in found["again"].items()),
        *(f"{number}. {said}" for said, number in reasons.items()),
        "",
        "## Round trips in processes without surefoot",
        "",
        "| model | greedy tokens equal to transformers | to llama.cpp | cached equal to uncached "
        "| onnxruntime's logits | tokens/s, ours | tokens/s, transformers |",
        "|---|---|---|---|---|---|---|",
        *trips,
        "",
        "llama.cpp (xllamacpp) holds keys and values in float32 here; by default it rounds them to float16.",
        "Tokens per second are per second of CPU time, batch 1, 128 tokens, in turns, the best of three.",
        "",
        "## Exported files by the figures of the run",
        "",
        "| model | figure | run | safetensors | onnx |",
        "|---|---|---|---|---|",
        *scored,
        "",
        "## Int8 weights",
        "",
        "`export --quantize` by torchao. The figures are those of `evaluate`: fashion on its test data, gpt and llama "
        "on the text of this bench's source.",
        "",
        "| model | weights | parameters in int8 | KiB | figure | value | change |",
        "|---|---|---|---|---|---|---|",
        *small,
        "",
        "## Not installed",
        "",
        "- llama-cpp-python has no built package for Linux: it was still building from source after 28 minutes, on 2 "
        "cores under load. xllamacpp brings llama.cpp built, and runs the column `gguf`.",
        "- ExecuTorch replaces antlr4 by an older version, so the column `pte` needs an environment of its own; this "
        "bench measures it where `executorch` is installed.",
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
