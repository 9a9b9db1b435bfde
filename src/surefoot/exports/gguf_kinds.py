"""GGUF in fewer bits, by llama.cpp's own quantiser: each tensor is read back, and perplexity taken before and after.

The quantiser is the program `llama-quantize`, or the same function of llama-cpp-python. surefoot has none of its own.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surefoot.checkpoint.files import fingerprint
from surefoot.data.batches import has_samples, micro_batches
from surefoot.data.formats import is_corpus, open_corpus
from surefoot.errors import MissingPackage, ParityError
from surefoot.exports import gguf_file, llama_cpp
from surefoot.exports.documents_apart import begins_in, holds_packed
from surefoot.exports.example_call import Call, call_on
from surefoot.exports.formats import CannotWrite, Job, need
from surefoot.exports.other_text import scored_on
from surefoot.exports.plain_call import MASK, TOKENS
from surefoot.plain_files import refusals_of, sync_file, sync_folder
from surefoot.recipe.build import build_data, build_evaluation, build_test
from surefoot.recipe.recipe import Recipe
from surefoot.records.export import QuantisedGguf
from surefoot.records.manifest import HELD_OUT
from surefoot.world.world import World

PROGRAM, PACKAGE = "llama-quantize", "llama_cpp"
SCORED, LONGEST = 1024, 257
"""How many tokens llama.cpp predicts for a perplexity, and the most tokens of one text."""
BROKEN = 0.5
"""No type rounds a tensor by this share of its norm; rows of another tensor differ by more than one."""
_BY_PACKAGE = """
import ctypes, sys
import llama_cpp
whole, small, kind = sys.argv[1:]
how = llama_cpp.llama_model_quantize_default_params()
how.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
sys.exit(llama_cpp.llama_model_quantize(whole.encode(), small.encode(), ctypes.byref(how)))
"""


@dataclass(frozen=True)
class Quantiser:
    """How llama.cpp's quantiser is started: before the two files and the type."""

    name: str
    command: tuple[str, ...]


def quantiser() -> Quantiser:
    """The program on the PATH, or else llama-cpp-python."""
    if program := shutil.which(PROGRAM):
        return Quantiser(PROGRAM, (program,))
    if importlib.util.find_spec(PACKAGE) is not None:
        return Quantiser("llama-cpp-python", (sys.executable, "-I", "-W", "ignore", "-c", _BY_PACKAGE))
    raise MissingPackage(
        f"types of GGUF are made by llama.cpp's own quantiser: put its program {PROGRAM} on the PATH (`brew install "
        "llama.cpp`, or a release of github.com/ggml-org/llama.cpp), or pip install llama-cpp-python"
    )


def write_kinds(job: Job, whole: torch.nn.Module, kinds: list[str], file: Path, world: World) -> list[QuantisedGguf]:
    """Writes `model.KIND.gguf` beside a float GGUF file, checks every tensor, and scores both in llama.cpp."""
    data, texts = _texts(job, whole, world)
    before, why = _perplexity(job, file, texts)
    made = []
    for kind in kinds:
        one = _written(job, kind, file)
        if one.path:
            after, why_after = _perplexity(job, Path(one.path), texts)
            one = replace(
                one, data=data, tokens=_predicted(texts), before=before, after=after, no_score=why or why_after
            )
        made.append(one)
    return made


def _written(job: Job, kind: str, file: Path) -> QuantisedGguf:
    """A draft is checked before it gets its name, so a process that is killed leaves no file to be taken for whole."""
    by, final = quantiser(), file.with_name(f"{file.stem}.{kind}.gguf")
    draft = final.with_name(f".{final.name}.part")
    try:
        with refusals_of(final):
            for old in (draft, final):
                old.unlink(missing_ok=True)
            _run(by, file, draft, kind)
            types, rounding, most = _rounding(file, draft)
            sync_file(draft)
            os.replace(draft, final)
            sync_folder(final.parent)
        apart = gguf_file.difference(job, final)
    except CannotWrite as error:
        return QuantisedGguf(kind, quantiser=by.name, reason=str(error))
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    found = fingerprint(final)
    return QuantisedGguf(
        kind, str(final), found.bytes, found.xxh3_128, by.name, types, rounding, most, difference=apart
    )


def _run(by: Quantiser, whole: Path, small: Path, kind: str) -> None:
    typed = [*by.command, str(whole.resolve()), str(small.resolve()), kind]
    done = subprocess.run(typed, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode or not small.is_file():
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower() or "failed" in line.lower()]
        said = (errors or lines or [f"it ended with {done.returncode}, without a word"])[-1]
        raise CannotWrite(f"{by.name} makes no {kind}: {said.strip()}")


def _rounding(whole: Path, small: Path) -> tuple[dict[str, int], float, str]:
    """How many tensors have each type, and which was rounded most, as a share of its norm.

    Raises `ParityError` if a tensor is missing or is not the one that was given, rounded.
    """
    library = need("gguf", "export", "GGUF")
    there = {each.name: each for each in library.GGUFReader(str(small)).tensors}
    shares: dict[str, float] = {}
    for each in library.GGUFReader(str(whole)).tensors:
        found = there.get(each.name)
        if found is None or found.shape.tolist() != each.shape.tolist():
            raise ParityError(f"the quantiser left out {each.name}, or changed its shape; do not use {small}")
        values = library.quants.dequantize(found.data, found.tensor_type).reshape(each.data.shape)
        size = float(np.linalg.norm(each.data))
        shares[each.name] = float(np.linalg.norm(values - each.data)) / size if size else float(np.abs(values).max())
        if not shares[each.name] < BROKEN:
            raise ParityError(
                f"{each.name} of the quantised file is not the model's tensor, rounded: it differs by "
                f"{shares[each.name]:.0%} of its norm; the file is not kept"
            )
    most = max(shares, key=lambda name: shares[name])
    return dict(Counter(each.tensor_type.name for each in there.values()).most_common()), shares[most], most


def _perplexity(job: Job, file: Path, texts: list[list[int]]) -> tuple[float | None, str]:
    """In llama.cpp; or None, and why."""
    if not llama_cpp.is_installed():
        return None, f"llama.cpp does not run here: pip install {llama_cpp.PACKAGE}"
    if not texts:
        return None, "the data holds no text of two tokens"
    try:
        found = llama_cpp.log_probabilities(file, texts, vocabulary=gguf_file.vocabulary_of(job))
    except CannotWrite as error:
        return None, str(error)
    return math.exp(-math.fsum(each for text in found for each in text) / _predicted(texts)), ""


def _predicted(texts: list[list[int]]) -> int:
    return sum(len(text) - 1 for text in texts)


def _texts(job: Job, whole: torch.nn.Module, world: World) -> tuple[str, list[list[int]]]:
    """The name of the data that is scored, and its first texts as tokens, in the order of the recipe's seed."""
    name, data = _data(job.recipe)
    longest, left, texts = min(LONGEST, gguf_file.context_of(job)), SCORED, []
    batches = micro_batches(
        data, size=1, seed=job.recipe.seed_of_data, collate=job.recipe.collate, once=has_samples(data)
    )
    for batch in islice(batches, SCORED):
        for text in _documents(call_on(world.take(iter([batch])), job.recipe, whole, job.network)):
            if len(text) > 1 and left > 0:
                texts.append(text[: min(longest, left + 1)])
                left -= len(texts[-1]) - 1
        if left <= 0:
            break
    return name, texts


def _data(recipe: Recipe) -> tuple[str, Any]:
    """Held-out data, or else test data, or else the held-out part of the corpus, or else the training data."""
    if recipe.evaluation is not None:
        return "evaluation", build_evaluation(recipe)
    if tests := list(recipe.tests()):
        return tests[0], build_test(recipe, tests[0])
    corpus = recipe.knobs.get("corpus")
    if isinstance(corpus, str) and is_corpus(corpus) and open_corpus(corpus).only(HELD_OUT).manifest.shards:
        return "the held-out part of its corpus", build_evaluation(scored_on(recipe, corpus))
    return "train", build_data(recipe)


def _documents(call: Call) -> Iterator[list[int]]:
    """The texts of a call's rows: packed documents apart, without padding."""
    given = dict(zip((TOKENS,), call.args, strict=False)) | call.kwargs
    tokens, mask = given[TOKENS], given.get(MASK)
    for number, row in enumerate(tokens):
        if not isinstance(mask, torch.Tensor):
            yield row.tolist()
        elif holds_packed(given):
            yield from (each.tolist() for each in row.tensor_split(begins_in(mask[number, 0])))
        else:
            yield row[mask[number].bool()].tolist()
