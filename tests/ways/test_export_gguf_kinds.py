"""export --format gguf --quantize: llama.cpp's own quantiser, each tensor read back, perplexity before and after."""

import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.data.tokenize import tokenize
from surefoot.errors import MissingPackage, ParityError, RunError
from surefoot.exports import gguf_kinds, llama_cpp
from surefoot.exports.example_call import Call
from surefoot.exports.format_table import GGUF_KINDS
from surefoot.exports.trained import trained_model
from surefoot.recipe.load import load_recipe
from surefoot.records.export import read_export
from surefoot.world.world import World
from tests.llama_quantiser import folder_of_quantiser, path_with
from tests.waiting import until

gguf = pytest.importorskip("gguf")
pytest.importorskip("transformers")
TEXT = "the {}th cat sat in the café, naïve and 你好, and then it left. "


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for number in range(8):
        (folder / f"{number}.txt").write_text(TEXT.format(number) * 12)
    tokenize([f"text={folder}/*.txt"], folder / "tokens", tokenizer="bytes", held_out=0.25)
    knobs = ["layers=1", "context=32", "micro_batch_size=2", "max_steps=3", f"corpus={folder}/tokens"]
    return surefoot.train(load_recipe("llama", knobs), path=str(tmp_path_factory.mktemp("llama") / "run"))


@pytest.fixture
def quantiser(tmp_path, monkeypatch):
    folder = folder_of_quantiser(tmp_path / "bin")
    if folder is None:
        pytest.skip("no llama-quantize on the PATH, and tests/llama_quantiser.py has no library")
    monkeypatch.setenv("PATH", path_with(folder))


def pretended(tmp_path, monkeypatch, code):
    """A program named llama-quantize that runs this code with `given`, `made` and `kind`."""
    program = tmp_path / "pretended" / "llama-quantize"
    program.parent.mkdir()
    begin = f"#!{sys.executable}\nimport pathlib, shutil, sys, time\n_, given, made, kind = sys.argv\n"
    program.write_text(begin + code)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", path_with(str(program.parent)))


def exported(run, to, *kinds):
    return surefoot.export(run.path, to=str(to), formats=["gguf"], quantize=kinds)


def test_llama_cpp_makes_and_runs_both_types_and_the_perplexity_is_the_model_s(run, tmp_path, quantiser):
    pytest.importorskip("xllamacpp")
    made = exported(run, tmp_path / "out", "Q4_K_M", "q8_0")
    four, eight = made.quantised_gguf
    assert [four.kind, eight.kind] == ["Q4_K_M", "Q8_0"]
    whole = made.formats[0].bytes
    assert four.bytes < 0.2 * whole < eight.bytes < 0.3 * whole
    assert set(eight.types) == {"Q8_0", "F32"}
    assert four.types["Q4_K"] > four.types["Q6_K"] > 0
    assert 0 < eight.rounding < 0.01 < four.rounding < 0.1
    assert 0 < eight.difference < four.difference < 0.05
    assert four.data == "the held-out part of its corpus"
    assert four.before == eight.before == pytest.approx(perplexity_in_torch(run, four), rel=1e-5)
    assert four.before != four.after == pytest.approx(four.before, rel=0.05)
    assert eight.before != eight.after == pytest.approx(eight.before, rel=0.005)
    assert read_export(tmp_path / "out") == made
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| {four.rounding:.2g} | {four.before:.6g} | {four.after:.6g} |" in card
    kind = gguf.GGUFReader(four.path).fields["general.file_type"].contents()
    assert gguf.LlamaFileType(kind).name == "MOSTLY_Q4_K_M"


def perplexity_in_torch(run, made):
    """Of the same texts."""
    recipe = load_recipe(run.target, [f"{name}={each}" for name, each in run.knobs.items() if each is not None])
    network = trained_model(recipe, World(), run.weights)
    with torch.no_grad():
        job = gguf_kinds.Job(recipe, network, None, None)
        _, texts = gguf_kinds._texts(job, network, World())
        total = 0.0
        for text in texts:
            logits = network(torch.tensor([text[:-1]]))[0].double()
            total += torch.nn.functional.cross_entropy(logits, torch.tensor(text[1:]), reduction="sum").item()
    assert sum(len(text) - 1 for text in texts) == made.tokens == gguf_kinds.SCORED
    assert any(byte > 127 for text in texts for byte in text[1:])
    return math.exp(total / made.tokens)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", GGUF_KINDS)
def test_every_type_has_the_name_that_llama_cpp_gives_it(kind, run, tmp_path, quantiser, monkeypatch):
    monkeypatch.setattr(gguf_kinds, "_perplexity", lambda job, file, texts: (None, "not asked"))
    (made,) = exported(run, tmp_path, kind).quantised_gguf
    assert not made.reason
    found = gguf.GGUFReader(made.path).fields["general.file_type"].contents()
    assert gguf.LlamaFileType(found).name == f"MOSTLY_{kind}"


def test_the_command_prints_the_cost_and_without_llama_cpp_says_that_it_is_not_known(
    run, tmp_path, quantiser, monkeypatch
):
    monkeypatch.setattr(llama_cpp, "is_installed", lambda: False)
    words = ["export", run.path, "--to", str(tmp_path / "out"), "--format", "gguf", "--quantize", "Q8_0"]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    text = " ".join(said.output.split())
    assert "Q8_0: by llama-quantize; tensors: 9 in Q8_0, 3 in F32; " in text
    assert "the perplexity of Q8_0 is not known: llama.cpp does not run here: pip install xllamacpp" in text


def test_llama_cpp_python_makes_the_same_file(run, tmp_path, quantiser, monkeypatch):
    pytest.importorskip("llama_cpp", reason="pip install llama-cpp-python, which builds llama.cpp")
    monkeypatch.setattr(gguf_kinds, "_perplexity", lambda job, file, texts: (None, "not asked"))
    (by_program,) = exported(run, tmp_path / "a", "Q4_K_M").quantised_gguf
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (by_package,) = exported(run, tmp_path / "b", "Q4_K_M").quantised_gguf
    assert by_package.quantiser == "llama-cpp-python"
    assert (by_package.types, by_package.rounding) == (by_program.types, pytest.approx(by_program.rounding, rel=0.01))


def test_what_cannot_be_made_is_refused_before_anything_is_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(gguf_kinds, "PACKAGE", "no_such_package")
    with pytest.raises(MissingPackage, match=r"put its program llama-quantize on the PATH .* or pip install llama-cpp"):
        exported(run, tmp_path / "out", "Q4_K_M")
    with pytest.raises(RunError, match=r"^Q4_K_M is a type of GGUF files: add --format gguf$"):
        surefoot.export(run.path, to=str(tmp_path / "out"), quantize="Q4_K_M")
    with pytest.raises(RunError, match="no quantisation 'Q4'; known: int8, int8-dynamic, Q8_0, "):
        exported(run, tmp_path / "out", "Q4")
    assert not (tmp_path / "out").exists()


def test_a_file_with_other_tensors_is_not_kept(run, tmp_path, monkeypatch):
    """The rows of a matrix come in another order."""
    swapped = """
import gguf, numpy
shutil.copy(given, made)
(one,) = [each for each in gguf.GGUFReader(made, "r+").tensors if each.name == "blk.0.attn_q.weight"]
one.data[:] = one.data[::-1].copy()
one.data.flush()
"""
    pretended(tmp_path, monkeypatch, swapped)
    with pytest.raises(ParityError, match=r"blk\.0\.attn_q\.weight of the quantised file is not the model's tensor"):
        exported(run, tmp_path / "out", "Q8_0")
    assert [each.name for each in (tmp_path / "out").glob("*Q8_0*")] == []


def test_what_the_quantiser_says_is_the_reason(run, tmp_path, monkeypatch):
    pretended(tmp_path, monkeypatch, "print('main: failed to quantize model: no room', file=sys.stderr); sys.exit(1)")
    words = ["export", run.path, "--to", str(tmp_path / "out"), "--format", "gguf", "--quantize", "Q8_0"]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 1, said.output
    assert "no Q8_0: llama-quantize makes no Q8_0: main: failed to quantize model: no room" in " ".join(
        said.output.split()
    )


def test_killed_while_it_is_made_no_file_has_its_name(run, tmp_path, monkeypatch, quantiser):
    out, path = tmp_path / "out", os.environ["PATH"]
    half = "pathlib.Path(made).write_bytes(pathlib.Path(given).read_bytes()[:9999]); time.sleep(600)"
    pretended(tmp_path, monkeypatch, half)
    words = ["export", run.path, "--to", str(out), "--format", "gguf", "--quantize", "Q8_0"]
    killed = subprocess.Popen(
        [sys.executable, "-m", "surefoot", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    draft = out / ".model.Q8_0.gguf.part"
    until(draft.exists, process=killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert draft.exists()
    assert not (out / "model.Q8_0.gguf").exists()
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(gguf_kinds, "_perplexity", lambda job, file, texts: (None, "not asked"))
    (made,) = exported(run, out, "Q8_0").quantised_gguf
    assert Path(made.path).is_file()
    assert not draft.exists()


def test_packed_documents_are_scored_apart_and_padding_is_not():
    tokens = torch.arange(1, 7)[None]
    apart = torch.ones(6, 6, dtype=torch.bool).tril()
    apart[4:, :4] = False
    packed = Call((), {"input_ids": tokens, "attention_mask": apart[None, None]})
    assert list(gguf_kinds._documents(packed)) == [[1, 2, 3, 4], [5, 6]]
    padded = Call((), {"input_ids": tokens, "attention_mask": torch.tensor([[1, 1, 1, 1, 0, 0]])})
    assert list(gguf_kinds._documents(padded)) == [[1, 2, 3, 4]]
    assert list(gguf_kinds._documents(Call((tokens,), {}))) == [[1, 2, 3, 4, 5, 6]]
