"""Held-out bits per byte: comparable between tokenizers, and falling when a model learns."""

import json
import math
import sysconfig
from pathlib import Path

import pytest
import torch

from surefoot import load_recipe
from surefoot.data.batches import batches_of
from surefoot.data.formats import open_corpus
from surefoot.data.held_out import bits_per_byte, held_out, held_out_batches
from surefoot.data.tokenize import tokenize
from surefoot.errors import DataError
from surefoot.records.run import read_run
from surefoot.step import Step
from surefoot.world.world import World
from tests.command_line import surefoot
from tests.data.corpora import random_documents, write_corpus

STDLIB = Path(sysconfig.get_path("stdlib"))


def test_bits_per_byte_of_even_odds(tmp_path):
    """Guessing evenly among 2**16 tokens of three bytes each is 16 bits for three bytes."""
    write_corpus(tmp_path, {"a": random_documents(3, 50), "a.held-out": random_documents(3, 50, seed=1)}, 2**16)
    assert bits_per_byte(math.log(2**16), str(tmp_path)) == pytest.approx(16 / 3)


def test_every_held_out_window_is_seen_once(tmp_path):
    write_corpus(tmp_path, {"a": random_documents(3, 50), "a.held-out": random_documents(9, 50, seed=1)})
    batches = list(held_out_batches(str(tmp_path), 16, 4))
    tokens = torch.cat([tokens for tokens, _ in batches]).flatten()
    manifest = held_out(str(tmp_path)).manifest
    assert tokens.tolist() == open_corpus(tmp_path).only("held-out").tokens(0, 0, len(tokens)).tolist()
    assert 0 <= manifest.tokens - 1 - len(tokens) < 16
    assert len(list(held_out_batches(str(tmp_path), 16, 4, batches=2))) == 2


def test_a_corpus_that_holds_nothing_out_is_refused(tmp_path):
    write_corpus(tmp_path, {"a": random_documents(3, 50)})
    with pytest.raises(DataError, match="has no held-out part"):
        held_out(str(tmp_path))


def falls(tmp_path, size: int, files: str, *words: str) -> tuple[float, float]:
    """Bits per byte before and after a short training of `gpt` on a tokenised corpus."""
    pytest.importorskip("datatrove")
    corpus = str(tmp_path / "corpus")
    tokenize([f"code={STDLIB}/{files}"], corpus, tokenizer=f"bpe:{size}", held_out=0.05)
    recipe = load_recipe("gpt", [f"corpus={corpus}", *words])
    step, batches = Step(recipe, World()), batches_of(recipe)
    context = recipe.tokens_per_sample
    scores = []
    for steps in (0, recipe.steps()):
        for _ in range(steps):
            step(next(batches) for _ in range(recipe.micro_batches()))
        loss = step.evaluate(held_out_batches(corpus, context, 8, batches=32)).loss.item()
        scores.append(bits_per_byte(loss, corpus))
    print(f"held out: {scores[0]:.3f} bits per byte before, {scores[1]:.3f} after {recipe.steps()} steps")
    return scores[0], scores[1]


SMALL = ("layers=2", "width=64", "heads=2", "context=64", "micro_batch_size=8", "global_batch_tokens=1024", "lr=3e-3")


@pytest.mark.sweep
@pytest.mark.parametrize("packed", ["no", "yes"])
def test_a_model_learns_from_a_tokenised_corpus(tmp_path, packed):
    before, after = falls(tmp_path, 512, "[a-c]*.py", *SMALL, "max_steps=20", f"packed={packed}")
    assert after < 0.93 * before


@pytest.mark.long
def test_the_command_learns_from_sixteen_thousand_byte_pairs(tmp_path, monkeypatch):
    """Python's own sources, from text to held-out bits per byte, as a person types it."""
    pytest.importorskip("datatrove")
    monkeypatch.chdir(tmp_path)
    words = ("--to", "corpus", "--tokenizer", "bpe:16384", "--held-out", "0.02", "--json")
    made = json.loads(surefoot("data", "tokenize", f"code={STDLIB}/**/*.py", *words).stdout)
    assert (made["vocabulary"], made["dtype"]) == (16_384, "uint16")
    size = ("layers=2", "width=128", "heads=4", "context=128", "global_batch_tokens=4096", "max_steps=100")
    done = surefoot("train", "gpt", "corpus=corpus", *size, "--run", "run")
    assert done.exit_code == 0, done.output
    run = read_run("run")
    bits = [run.bits_per_byte(row.evaluation_loss) for row in run.rows() if row.evaluation_loss is not None]
    print([f"{each:.4f}" for each in bits])
    assert len(bits) == 10
    assert bits[-1] < 0.8 * bits[0]
    assert f"= {bits[-1]:.4f} bits/byte" in done.stdout
