"""export of models that take keywords and dicts, and return tuples, dicts and data classes."""

import math

import pytest
import torch
from safetensors.torch import load_file

import surefoot
from surefoot.errors import RunError
from surefoot.exports.outputs import difference, is_plain, made_plain
from surefoot.reports.console import as_text
from surefoot.reports.export import export_text
from surefoot.ways.export import export_weights
from tests import exports_models as models


def exported(recipe, tmp_path):
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    return surefoot.export(run.path, recipe, to=str(tmp_path / "out"))


def loaded(record):
    return torch.export.load(record.program).module()


def test_a_keyword_in_and_a_tuple_out(tmp_path):
    record = exported(models.vae(), tmp_path)
    assert record.inputs == ("float32[4, 6]", "noise float32[4, 2]")
    assert (record.program_difference, record.weights_difference) == (0.0, 0.0)
    assert record.dynamic_batch
    model = models.Vae()
    model.load_state_dict(load_file(record.weights))
    images, noise = torch.randn(9, 6), torch.randn(9, 2)
    assert difference(model(images, noise=noise), loaded(record)(images, noise=noise)) < 1e-6


def test_a_dict_in_and_a_data_class_out_need_no_class_to_be_called(tmp_path):
    record = exported(models.detector(), tmp_path)
    made = loaded(record)({"points": torch.randn(3, 5, 5), "mask": torch.ones(3, 5)})
    assert {name: tuple(each.shape) for name, each in made.items()} == {"boxes": (3, 5, 4), "scores": (3, 5, 1)}
    assert record.free == ((0, 1), (0, 1))
    assert record.left_out == ("note (str)",)
    said = " ".join(as_text(export_text(record)).split())
    assert "a batch of any size; dimension 1 may have any size too" in said
    assert "not among its outputs, because they are no tensors: note (str)" in said


def test_a_model_of_transformers(tmp_path):
    record = exported(models.bert(), tmp_path)
    assert record.program_difference < 1e-6
    tokens = torch.randint(30, (3, 9))
    made = loaded(record)(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=torch.zeros(3).long())
    assert set(made) == {"loss", "logits"}


def test_what_torch_cannot_export_has_a_reason_and_its_weights(tmp_path):
    record = exported(models.tagger(), tmp_path)
    assert record.program == ""
    assert record.why_no_program.startswith(("exports_models.py:", "rnn.py:"))
    assert (tmp_path / "out" / "model.safetensors").exists()
    assert not (tmp_path / "out" / "model.pt2").exists()
    assert "no program: torch.export cannot make one: " in " ".join(as_text(export_text(record)).split())


@pytest.mark.parametrize("names", [("[bold]", "[/]"), ("[/red]x", "<b>"), ("{x}", "a'b")])
def test_markup_in_names_is_only_text(names, tmp_path):
    record = exported(models.named(*names), tmp_path)
    assert (record.program_difference, record.weights_difference) == (0.0, 0.0)
    assert "difference" in as_text(export_text(record))


@pytest.mark.parametrize(
    ("module", "parameter", "refused"),
    [
        ('<a href="x">', "scale", """'<a href="x">'"""),
        ("layer", "[link=\x1b[31m]", r"'[link=\x1b[31m]'"),
        ("a\nb", "scale", r"'a\nb'"),
        ("a\\b", "scale", r"'a\\b'"),
        ("class", "scale", "'class'"),
    ],
)
def test_a_name_that_torch_export_cannot_write_is_refused_and_its_weights_are_not(module, parameter, refused, tmp_path):
    recipe = models.named(module, parameter)
    with pytest.raises(RunError) as error:
        exported(recipe, tmp_path)
    assert str(error.value) == (
        f"torch.export cannot write a program for a module or parameter named {refused}; rename it, or write the "
        "weights alone with --weights"
    )
    assert len(load_file(export_weights(str(tmp_path / "run")).files[0])) == 3


# ------------------------------------------------------------------------------------------- comparing


ONE, TWO = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])


@pytest.mark.parametrize(
    ("here", "there", "found"),
    [
        (ONE, ONE, 0.0),
        ((ONE, {"a": ONE}), [ONE, {"a": TWO}], 0.5),
        ({"a": ONE}, {"b": ONE}, math.inf),
        ((ONE, ONE), (ONE,), math.inf),
        (ONE, ONE.double(), math.inf),
        (ONE, ONE[:1], math.inf),
        (ONE.long(), TWO.long(), math.inf),
        (models.Answer(ONE, ONE), {"boxes": ONE, "scores": TWO}, 0.5),
        (ONE, torch.tensor([1.0, math.nan]), math.nan),
        ("text", "text", math.inf),
    ],
)
def test_the_whole_output_is_compared(here, there, found):
    assert difference(here, there) == pytest.approx(found, nan_ok=True)


def test_an_output_is_made_plain():
    made = made_plain(models.Answer(ONE, (ONE, [TWO, None])))
    assert is_plain(made)
    assert set(made) == {"boxes", "scores"}
    assert not is_plain(models.Answer(ONE, ONE))
