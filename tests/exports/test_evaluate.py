"""evaluate: the same figures for any micro-batch size, any ranks, a run and what was exported from it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.data.tokenize import tokenize
from surefoot.errors import DataError, RecipeError, RunError
from surefoot.recipe.load import load_recipe
from surefoot.records.codec import from_json
from surefoot.records.evaluation import Evaluation
from surefoot.reports.console import as_text
from surefoot.reports.evaluation import evaluation_text
from tests import exports_models as models
from tests.scored import scored

SIX = 5e-7
"""Two numbers with a relative difference below this agree in six digits."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text").mkdir()
    for number in range(40):
        (folder / "text" / f"{number}.txt").write_text(f"the {number}th cat sat on the mat; was {number} shut? " * 30)
    tokenize([f"text={folder}/text/*.txt"], folder / "tokens", tokenizer="bpe:300", held_out=0.25)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory, corpus):
    words = ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=2", "global_batch_tokens=64"]
    recipe = load_recipe("gpt", [*words, "max_steps=20", f"corpus={corpus}/tokens"])
    return surefoot.train(recipe, path=str(tmp_path_factory.mktemp("gpt") / "run"))


@pytest.fixture(scope="module")
def exported(run):
    return surefoot.export(run.path)


def only(made: Evaluation):
    (score,) = made.scores
    return score


# ------------------------------------------------------------------------------------------- exact


def test_perplexity_does_not_depend_on_the_micro_batch(run):
    whole = only(surefoot.evaluate(run.path, micro_batch_size=8))
    assert whole.samples > 8
    assert whole.samples % 8
    for size in (1, 5):
        part = only(surefoot.evaluate(run.path, micro_batch_size=size))
        assert part.perplexity == pytest.approx(whole.perplexity, rel=SIX)
        assert part.bits_per_byte == pytest.approx(whole.bits_per_byte, rel=SIX)


def test_perplexity_does_not_depend_on_ranks(run):
    """Two ranks that shard the model say the same to the last digit, once."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    typed = [*launcher, "-m", "surefoot", "evaluate", run.path, "--json"]
    done = subprocess.run(typed, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    two = from_json(Evaluation, done.stdout)
    assert two.ranks == 2
    assert only(two) == only(surefoot.evaluate(run.path))


def test_a_run_of_two_ranks_that_set_no_global_batch_is_read_by_one_process(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    knobs = ["samples=64", "max_steps=2"]
    typed = [*launcher, "-m", "surefoot", "train", "regression", *knobs, "--dir", str(tmp_path / "run")]
    done = subprocess.run(typed, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert surefoot.evaluate(str(tmp_path / "run"), data="train").scores
    surefoot.export(str(tmp_path / "run"))
    with pytest.raises(RunError, match="micro_batch_size was"):
        surefoot.evaluate(str(tmp_path / "run"), load_recipe("regression", ["samples=64", "micro_batch_size=1"]))


def test_the_figures_of_the_run_are_found_again(tmp_path):
    recipe = scored(max_steps=10, best=None)
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    held_out = only(surefoot.evaluate(run.path, recipe))
    assert (held_out.samples, held_out.perplexity) == (101, None)
    assert held_out.loss == pytest.approx(run.evaluation_loss, rel=SIX)
    assert held_out.metrics == run.metrics
    test = only(surefoot.evaluate(run.path, recipe, data="test", micro_batch_size=77))
    assert test.loss == pytest.approx(run.tests["test"]["loss"], rel=SIX)
    assert test.metrics["accuracy"] == run.tests["test"]["accuracy"]


def test_averaged_weights_are_scored_as_they_were_kept(tmp_path):
    recipe = scored(max_steps=10, best=None, ema=0.5)
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert only(surefoot.evaluate(run.path, recipe)).loss == pytest.approx(run.evaluation_loss, rel=SIX)


def test_a_loss_that_is_a_mean_is_named(tmp_path):
    recipe = models.vae()
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    made = surefoot.evaluate(run.path, recipe, data="train")
    assert made.loss_is_mean
    assert "return a sum and a count" in as_text(evaluation_text(made))


# ------------------------------------------------------------------------------------------- exports


def test_an_exported_file_has_the_figures_of_the_run(run, exported):
    of_run = only(surefoot.evaluate(run.path))
    assert only(surefoot.evaluate(exported.weights)) == of_run
    assert only(surefoot.evaluate(str(Path(exported.weights).parent))) == of_run
    program = surefoot.evaluate(exported.program, trust_run=True)
    assert only(program).perplexity == pytest.approx(of_run.perplexity, rel=SIX)
    assert program.file == exported.program


@pytest.mark.sweep
def test_a_program_of_transformers_is_scored_by_the_recipe_of_its_model(tmp_path):
    recipe = models.bert()
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    made = surefoot.export(run.path, recipe)
    whole, program = (
        only(surefoot.evaluate(each, recipe, data="train", trust_run=True)) for each in (run.path, made.program)
    )
    assert program.loss == pytest.approx(whole.loss, rel=SIX)


def test_a_recipe_that_uses_more_than_a_call_needs_the_weights(tmp_path):
    recipe = scored(max_steps=1, best=None, metrics=lambda model, _: {"width": (model[0].out_features, 1)})
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    made = surefoot.export(run.path, recipe)
    assert only(surefoot.evaluate(made.weights, recipe)).metrics == {"width": 64.0}
    with pytest.raises(RunError, match="a program can only be called; score model"):
        surefoot.evaluate(made.program, recipe, trust_run=True)


def test_a_file_alone_needs_a_recipe_and_its_knobs(run, exported, tmp_path):
    alone = tmp_path / "model.safetensors"
    alone.write_bytes(Path(exported.weights).read_bytes())
    with pytest.raises(RunError, match="name it and its knobs: RECIPE KNOB=VALUE"):
        surefoot.evaluate(str(alone))
    words = [f"{name}={value}" for name, value in run.knobs.items() if name != "size"]
    assert only(surefoot.evaluate(str(alone), "gpt", knobs=words)) == only(surefoot.evaluate(run.path))


def test_a_program_is_not_read_unless_its_maker_is_trusted(exported, monkeypatch):
    monkeypatch.setattr(torch.export, "load", lambda file: pytest.fail("it was read"))
    with pytest.raises(RunError, match=r"torch executes pickles or machine code in it; score model.safetensors, or"):
        surefoot.evaluate(exported.program)


class Payload:
    def __reduce__(self):
        return os.mkdir, ("EXECUTED",)


def test_files_that_do_not_fit_are_refused_in_one_sentence(run, exported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole, file = load_file(exported.weights), tmp_path / "model.safetensors"
    words = [f"{name}={value}" for name, value in run.knobs.items() if name != "size"]

    def refused(*others: str) -> str:
        with pytest.raises(RunError) as error:
            surefoot.evaluate(str(file), "gpt", knobs=[*words, *others])
        return str(error.value)

    file.write_bytes(Path(exported.weights).read_bytes()[:-9])
    assert "is not a whole safetensors file" in refused()
    file.write_bytes(b"")
    assert "is not a whole safetensors file" in refused()
    torch.save({"token.weight": Payload()}, file)
    assert "is a pickle with another name: reading it could execute code, so surefoot does not" in refused()
    assert not Path("EXECUTED").exists()
    save_file({name: each.half() for name, each in whole.items()}, file)
    assert "is F16 in the file and float32 in the model; export it again, or set the precision" in refused()
    save_file({name: each[:-3].clone() if len(each) == 300 else each for name, each in whole.items()}, file)
    assert "is [297, 32] in the file and [300, 32] in the model, as with another vocabulary" in refused()
    save_file({name: each for name, each in whole.items() if "mlp.2" not in name}, file)
    assert "it lacks blocks.0.mlp.2.weight and 1 more; name the recipe and the knobs" in refused()
    save_file({**whole, "extra": torch.ones(1)}, file)
    assert "it has extra, which the model has not" in refused()
    file.write_text("not a program")
    file = file.rename(tmp_path / "model.pt2")
    with pytest.raises(RunError, match="is not a program that can be read here"):
        surefoot.evaluate(str(file), "gpt", knobs=words, trust_run=True)


def test_weights_that_changed_since_the_export_are_refused(run, tmp_path):
    made = surefoot.export(run.path, to=str(tmp_path / "out"))
    content = bytearray(Path(made.weights).read_bytes())
    content[-1] ^= 1
    Path(made.weights).write_bytes(bytes(content))
    with pytest.raises(RunError, match=r"do not match their hash; copy it again, or export the run again"):
        surefoot.evaluate(str(tmp_path / "out"))


def test_an_export_names_its_recipe_and_executes_no_code_of_it(tmp_path):
    imports = "from surefoot import Recipe\nfrom tests.scored import scored\n\n\n"
    (tmp_path / "mine.py").write_text(f"{imports}def mine() -> Recipe:\n    return scored(max_steps=2, best=None)\n")
    recipe = load_recipe(str(tmp_path / "mine.py"))
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    surefoot.export(run.path, recipe, to=str(tmp_path / "out"))
    for trust in (False, True):
        with pytest.raises(RunError, match=r"name the recipe that made it \('.*mine.py'\)"):
            surefoot.evaluate(str(tmp_path / "out"), trust_run=trust)
    assert only(surefoot.evaluate(str(tmp_path / "out"), str(tmp_path / "mine.py"))).samples == 101


# ------------------------------------------------------------------------------------------- other data


def test_text_of_the_same_tokens_is_scored(run, corpus, tmp_path):
    assert only(surefoot.evaluate(run.path, data=f"{corpus}/tokens")).loss == only(surefoot.evaluate(run.path)).loss
    with pytest.raises(DataError, match=r"holds no tokens, and the model learned those of .*/tokens; tokenise it"):
        surefoot.evaluate(run.path, data=f"{corpus}/text")
    tokenize([f"text={corpus}/text/*.txt"], tmp_path / "other", tokenizer="bpe:290")
    with pytest.raises(DataError, match=r"has another vocabulary than .*: 290 and 300"):
        surefoot.evaluate(run.path, data=str(tmp_path / "other"))


def test_a_model_of_bytes_is_scored_on_files_in_bits_per_byte(corpus, tmp_path):
    words = ["layers=1", "width=16", "heads=2", "context=32", "micro_batch_size=2", "global_batch_tokens=64"]
    run = surefoot.train(load_recipe("gpt", [*words, "max_steps=1"]), path=str(tmp_path / "run"))
    found = only(surefoot.evaluate(run.path, data=f"{corpus}/text"))
    assert found.bits_per_byte == pytest.approx(found.loss / 0.6931471805599453)
    with pytest.raises(DataError, match="holds tokens, and the model learned bytes"):
        surefoot.evaluate(run.path, data=f"{corpus}/tokens")
    with pytest.raises(RecipeError, match="gpt has no evaluation data; it has train, or name a folder of text"):
        surefoot.evaluate(run.path)
    with pytest.raises(RecipeError, match="gpt has no nonsense data; it has train"):
        surefoot.evaluate(run.path, data="nonsense")


# ------------------------------------------------------------------------------------------- the command


def test_the_command_prints_a_table(run):
    said = CliRunner().invoke(app, ["evaluate", run.path])
    assert said.exit_code == 0, said.output
    assert "perplexity  bits per byte" in said.output
    assert "2 at a time on 1 rank of cpu" in " ".join(said.output.split())


def test_what_is_neither_run_nor_export_is_refused(tmp_path):
    with pytest.raises(
        RunError, match=r"is neither a run nor an export: it holds no run.json and no model.safetensors"
    ):
        surefoot.evaluate(str(tmp_path))
    with pytest.raises(RunError, match="there is no file or folder"):
        surefoot.evaluate(str(tmp_path / "nothing"))
