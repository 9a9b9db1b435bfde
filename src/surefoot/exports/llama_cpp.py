"""Runs a GGUF file in llama.cpp: the tokens that it makes of texts, and what it expects after a prompt.

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

from surefoot.exports.formats import CannotWrite

SECONDS = 600
EXTRA, PACKAGE = "llama-cpp", "xllamacpp"
_RUN = """
import json, sys, urllib.request
import xllamacpp
asked = json.load(sys.stdin)
how = xllamacpp.CommonParams()
how.model.path, how.n_ctx, how.n_parallel, how.warmup = asked["path"], asked["context"], 1, False
how.hostnames, how.n_gpu_layers = ["127.0.0.1"], 0
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

def expected(prompt):
    said = ask("completion", prompt=prompt, n_predict=1, n_probs=asked["most"], logit_bias=letter, ignore_eos=True)
    return [[each["id"], each["logprob"]] for each in said["completion_probabilities"][0]["top_logprobs"]]

made = {"tokens": [tokens(text) for text in asked["texts"]], "expected": [expected(each) for each in asked["prompts"]]}
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
    asked = {
        "path": str(path.resolve()),
        "texts": list(texts),
        "prompts": [list(each) for each in prompts],
        "most": most,
        "context": max([len(each) for each in prompts], default=0) + 2,
    }
    typed = [sys.executable, "-I", "-W", "ignore", "-c", _RUN]
    done = subprocess.run(typed, input=json.dumps(asked), capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise CannotWrite(f"llama.cpp does not run {path.name}: {_why(done.stderr)}")
    made = json.loads(done.stdout.splitlines()[-1])
    return Ran(made["tokens"], [dict(map(tuple, each)) for each in made["expected"]])


def _why(errors: str) -> str:
    """The first error of its log, or else the last line that is no information."""
    lines = [line for line in errors.splitlines() if line.strip() and " I " not in line]
    first = next((line.partition(" E ")[2] for line in lines if " E " in line), "")
    return " ".join((first or (lines or ["it ended without a word"])[-1]).split())
