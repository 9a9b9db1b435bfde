"""Runs a GGUF file in llama.cpp: the tokens that it makes of texts, what it expects after a prompt, its perplexity.

It runs in a process of its own, since a file that llama.cpp cannot take ends the process.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from surefoot.exports.formats import CannotWrite

SECONDS, SCORE_SECONDS = 600, 6 * 3600
EXTRA, PACKAGE = "llama-cpp", "xllamacpp"
_SERVER = """
import json, sys, urllib.request
import xllamacpp
asked = json.load(sys.stdin)
how = xllamacpp.CommonParams()
how.model.path, how.n_ctx, how.n_parallel, how.warmup = asked["path"], asked["context"], 1, False
how.hostnames, how.n_gpu_layers = ["127.0.0.1"], 0
how.cpuparams.n_threads = how.cpuparams_batch.n_threads = asked["threads"]
# Keys and values as the model has them; its defaults round them to float16.
how.cache_type_k = how.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
how.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(how)

def ask(route, **given):
    address, kind = f"{server.listening_address}/{route}", {"Content-Type": "application/json"}
    return json.load(urllib.request.urlopen(urllib.request.Request(address, json.dumps(given).encode(), kind)))

def tokens(text):
    return ask("tokenize", content=text, add_special=False, parse_special=False)["tokens"]

# It says nothing of a token that is a part of a letter, so it must take a whole one; that changes no probability.
letter = [[token, 1e9] for token in tokens("a")[:1]]
"""
_RUN = """
def expected(prompt):
    said = ask("completion", prompt=prompt, n_predict=1, n_probs=asked["most"], logit_bias=letter, ignore_eos=True)
    return [[each["id"], each["logprob"]] for each in said["completion_probabilities"][0]["top_logprobs"]]

made = {"tokens": [tokens(text) for text in asked["texts"]], "expected": [expected(each) for each in asked["prompts"]]}
print("\\n" + json.dumps(made))
"""
_SCORE = """
def expected(prompt, taken, most):
    given = {"prompt": prompt, "n_predict": 1, "n_probs": most, "logit_bias": taken, "ignore_eos": True}
    said = server.handle_completions(given)["choices"][0]["logprobs"]
    return said["content"] if said else []

def logprob(prompt, token):
    if (found := expected(prompt, [[token, 1e9]], 1)) and found[0]["id"] == token:
        return found[0]["logprob"]
    (whole,) = expected(prompt, letter, asked["vocabulary"])  # a part of a letter, or the end of a text
    return next(each["logprob"] for each in whole["top_logprobs"] if each["id"] == token)

made = [[logprob(text[:place], text[place]) for place in range(1, len(text))] for text in asked["prompts"]]
print("\\n" + json.dumps(made))
"""


@dataclass(frozen=True)
class Ran:
    """The tokens of each text, and of each prompt the log-probabilities of the likeliest next tokens."""

    tokens: list[list[int]]
    expected: list[dict[int, float]]


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


def run(path: Path, texts: Sequence[str], prompts: Sequence[Sequence[int]], *, most: int) -> Ran:
    """Raises `CannotWrite` if llama.cpp does not run the file."""
    made = _said_by(_RUN, path, prompts, texts=list(texts), most=most)
    return Ran(made["tokens"], [dict(map(tuple, each)) for each in made["expected"]])


def log_probabilities(path: Path, texts: Sequence[Sequence[int]], *, vocabulary: int) -> list[list[float]]:
    """Of each text, the log-probability of each token after the first.

    Raises `CannotWrite` if llama.cpp does not run the file.
    """
    found: list[list[float]] = _said_by(_SCORE, path, texts, seconds=SCORE_SECONDS, vocabulary=vocabulary)
    return found


def _said_by(code: str, path: Path, prompts: Sequence[Sequence[int]], *, seconds: float = SECONDS, **more: Any) -> Any:
    asked = {
        "path": str(path.resolve()),
        "prompts": [list(each) for each in prompts],
        "context": max([len(each) for each in prompts], default=0) + 2,
        "threads": torch.get_num_threads(),
        **more,
    }
    typed = [sys.executable, "-I", "-W", "ignore", "-c", _SERVER + code]
    try:
        done = subprocess.run(typed, input=json.dumps(asked), capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise CannotWrite(f"llama.cpp needs more than {seconds:,} seconds to run {path.name}") from error
    if done.returncode:
        raise CannotWrite(f"llama.cpp does not run {path.name}: {_why(done.stderr)}")
    return json.loads(done.stdout.splitlines()[-1])


def _why(errors: str) -> str:
    """The first error of its log, or else the last line that is no information."""
    lines = [line for line in errors.splitlines() if line.strip() and " I " not in line]
    first = next((line.partition(" E ")[2] for line in lines if " E " in line), "")
    return " ".join((first or (lines or ["it ended without a word"])[-1]).split())
