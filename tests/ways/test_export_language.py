"""export of language models: plain tokens of any number and length, however training packed them."""

import dataclasses
import json

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import surefoot
from surefoot import load_recipe
from surefoot.errors import RunError
from surefoot.exports.merge import merge
from surefoot.exports.outputs import difference
from surefoot.exports.trained import trained_model
from surefoot.finetuning.chat_corpus import write_chat_corpus
from surefoot.finetuning.methods import peft_unwarned
from surefoot.reports.console import as_text
from surefoot.reports.export import export_text
from surefoot.world.world import World
from tests import exports_models as models
from tests import tuned_models

peft = pytest.importorskip("peft", reason="pip install peft")

SIZES = [(1, 7), (1, 64), (3, 7), (3, 64)]


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """The knobs of a fine-tune on conversations, in rows of 95 tokens that hold several of them."""
    here = tmp_path_factory.mktemp("chat")
    model = tuned_models.llama(here / "model", vocab_size=320, max_position_embeddings=128)
    tuned_models.tokenizer(model)
    talks = [
        {"messages": [{"role": "user", "content": f"{n} and one?"}, {"role": "assistant", "content": str(n + 1)}]}
        for n in range(40)
    ]
    (here / "talks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in talks))
    write_chat_corpus([str(here / "talks.jsonl")], here / "corpus", model=str(model), context=96, held_out=0.2)
    return [f"model={model}", f"data={here / 'corpus'}", "context=95", "rank=2", "max_steps=2", "lr=0.05"]


def model_of(run, recipe):
    return trained_model(recipe, World(), run.weights)


def text_of(record) -> str:
    return " ".join(as_text(export_text(record)).split())


def plain(batch: int, length: int, vocabulary: int = 320) -> dict[str, Tensor]:
    """Tokens, and a mask with padding at the end of the last row."""
    tokens = torch.randint(vocabulary, (batch, length))
    mask = torch.ones_like(tokens)
    mask[-1, -3:] = 0
    return {"input_ids": tokens, "attention_mask": mask}


def in_onnx(path: str, given: dict[str, Tensor]) -> dict[str, Tensor]:
    session = onnxruntime.InferenceSession(path)
    made = session.run(None, {name: each.numpy() for name, each in given.items()})
    return {each.name: torch.from_numpy(value) for each, value in zip(session.get_outputs(), made, strict=True)}


# The default of `finetune` is a micro-batch of one, which torch.export would fix.
@pytest.mark.sweep
@pytest.mark.parametrize(("method", "micro_batch_size"), [("lora", 2), ("full", 1)])
def test_a_chat_run_exports_plain_tokens_of_any_batch_and_length(method, micro_batch_size, chat, tmp_path):
    recipe = load_recipe("finetune", [*chat, f"method={method}", f"micro_batch_size={micro_batch_size}"])
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    record = surefoot.export(run.path, formats=["pt2", "onnx"])
    assert record.inputs == ("input_ids int64[2, 95]", "attention_mask int64[2, 95]")
    assert record.free == ((0, 1), (0, 1))
    assert (record.fixed, record.limits) == ((), ())
    model, program, onnx = model_of(run, recipe), torch.export.load(record.program).module(), record.formats[0]
    assert onnx.reason == ""
    for batch, length in SIZES:
        given = plain(batch, length)
        with torch.no_grad():
            expected = {"logits": model(**given).logits}
        assert difference(expected, program(**given)) < 1e-5
        assert difference(expected, in_onnx(onnx.path, given)) < 1e-5
    scores = [surefoot.evaluate(path).scores[0].loss for path in (run.path, onnx.path)]
    assert scores[1] == pytest.approx(scores[0], rel=1e-6)


def with_prefix(chat) -> surefoot.Recipe:
    """A recipe of the user's own: a prefix of peft's in place of an adapter of surefoot's."""

    def adapt(model):
        with peft_unwarned():
            return peft.get_peft_model(model, peft.PrefixTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"))

    rows = TensorDataset(torch.arange(32)[:, None] + torch.arange(12))

    def loss(model, batch):
        logits = model(input_ids=batch[0], attention_mask=torch.ones_like(batch[0])).logits
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[0][:, 1:].flatten())

    recipe = load_recipe("finetune", [chat[0], "method=full", "micro_batch_size=2", "max_steps=2"])
    return dataclasses.replace(recipe, adapt=adapt, data=lambda: rows, loss=loss, tokens_per_sample=12)


def test_prefix_tuning_is_exported_with_its_prefix_and_cannot_be_merged(chat, tmp_path):
    recipe = with_prefix(chat)
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    record = surefoot.export(run.path, recipe, formats=["pt2", "hf"])
    assert record.adapter_difference == 0
    model, program = model_of(run, recipe), torch.export.load(record.program).module()
    for batch, length in SIZES:
        given = plain(batch, length)
        with torch.no_grad():
            assert difference({"logits": model(**given).logits}, program(**given)) < 1e-5
    why = "an adapter of the kind PREFIX_TUNING changes no weights, so it cannot be merged into them; use "
    assert record.formats[0].reason.startswith(why)
    with pytest.raises(RunError, match=r"cannot be merged into them; use the folder adapter/ with peft, or `surefoot"):
        merge(run.path, recipe)


# ------------------------------------------------------------------------------------------- sizes of any model


def test_the_built_in_llama_takes_every_length_of_its_context(tmp_path):
    recipe = load_recipe("llama", ["layers=2", "context=32", "micro_batch_size=2", "max_steps=1"])
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    record = surefoot.export(run.path)
    model, program = model_of(run, recipe), torch.export.load(record.program).module()
    for batch, length in ((1, 7), (3, 31), (3, 32)):
        tokens = torch.randint(256, (batch, length))
        with torch.no_grad():
            assert difference(model(tokens), program(tokens)) < 1e-5
    assert record.fixed == ()
    assert "a batch of any size; dimension 1 of tokens is free up to 32" in text_of(record)


class Halves(nn.Module):
    """Torch fixes its length: a condition of the code asks for it. Its keywords have no names of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor, **more: Tensor) -> Tensor:
        made = self.first(x) if x.shape[1] == 12 else self.second(x)
        return made + more["shift"]


def halves() -> surefoot.Recipe:
    data = TensorDataset(torch.randn(16, 12, 6), torch.randn(16, 12, 1))
    return models.recipe_of(
        Halves, lambda: data, lambda model, batch: model(shift=batch[1], x=batch[0]).square().mean()
    )


def test_a_fixed_size_is_named_with_its_reason(tmp_path):
    record = surefoot.export(surefoot.train(halves(), path=str(tmp_path / "run")).path, halves(), formats=["onnx"])
    assert record.dynamic_batch
    fixed = {(each.input, each.dimension): (each.size, each.why) for each in record.fixed}
    assert {place: size for place, (size, _) in fixed.items()} == {("x", 1): 12, ("x", 2): 6, ("shift", 1): 12}
    assert "x.size()[1] == 12" in fixed["x", 1][1]
    assert "mat1 and mat2 shapes cannot be multiplied" in fixed["x", 2][1]
    said = text_of(record)
    assert "onnx takes a batch of any size fixed: " in said
    assert "fixed: dimension 1 of shift and dimension 1 of x at 12: " in said
    assert "fixed: dimension 2 of x at 6: the network takes no other size: " in said


def test_a_batch_of_one_is_exported_for_any_batch(tmp_path):
    recipe = dataclasses.replace(models.vae(), micro_batch_size=1)
    record = surefoot.export(surefoot.train(recipe, path=str(tmp_path / "run")).path, recipe)
    assert record.dynamic_batch
    assert record.inputs == ("float32[2, 6]", "noise float32[2, 2]")
    made = torch.export.load(record.program).module()(torch.randn(5, 6), noise=torch.randn(5, 2))
    assert made[0].shape == (5, 6)
