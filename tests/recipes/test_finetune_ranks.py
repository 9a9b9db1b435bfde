"""Fine-tuning on two ranks, sharded and replicated: the losses of one rank, the same bits after a stop, as planned."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import surefoot
from surefoot import read_run
from surefoot.finetuning.methods import peft_unwarned
from surefoot.meters import allocator
from tests import preferences, tuned_models
from tests.ranks import Case, on_ranks
from tests.recipes.tuned_ranks import tuned
from tests.resumed import final_state, told

pytestmark = pytest.mark.sweep
peft = pytest.importorskip("peft", reason="pip install peft")

METHODS = ("lora", "dora", "qlora", "full", "frozen", "bitfit", "packed", "saved")
PACKED = ["method=lora", "packed=true", "context=64", "global_batch_tokens=512"]
SAVED = ["method=lora", "modules_to_save=lm_head"]
"""LoRA on rows of several documents, and beside a whole layer that is trained."""
ADAPTERS = ("lora", "dora", "qlora", "packed", "saved")
LAYOUTS = {"fsdp": [], "ddp": ["dp_replicate=2"]}


def words_of(method: str, folder: Path) -> list[str]:
    """The words of a fine-tune by this method, with dropout in the adapters, on a model that can be tuned by it."""
    if method == "bitfit":
        made = [f"model={tuned_models.bert(folder / 'model')}", "task=masked"]
    else:
        made = [f"model={tuned_models.llama(folder / 'model')}"]
    adapts = ["dropout=0.1"] if method in ADAPTERS else []
    data = tuned_models.corpus(folder / "corpus")
    chosen = {"packed": PACKED, "saved": SAVED}.get(method, [f"method={method}"])
    return [*made, *chosen, f"data={data}", "lr=0.01", *adapts]


def case(path: Path, words: list[str], ranks: int = 2, asked: tuple[int, int] | None = None) -> Case:
    return Case("tests.recipes.tuned_ranks", "trained", ranks, (str(path), words, asked))


def runs(words: list[str], folder: Path) -> None:
    """A run on one rank and in each layout; and a sharded run that rank 1 stops, and that is resumed."""
    cases = [case(folder / "one", words, ranks=1)]
    cases += [case(folder / name, [*words, *layout]) for name, layout in LAYOUTS.items()]
    cases += [case(folder / "pieces", words, asked=(1, 1)), case(folder / "pieces", words)]
    for made, status in zip(cases, on_ranks(cases, folder), strict=True):
        assert set(status) == {"finished" if made.arguments[2] is None else "interrupted"}


def assert_like_one_rank(folder: Path, name: str) -> None:
    """The run has the samples and losses of one rank, and its weights up to rounding."""
    one, many = (read_run(folder / each) for each in ("one", name))
    assert [row.samples for row in many.rows()] == [row.samples for row in one.rows()]
    assert [row.loss for row in many.rows()] == pytest.approx([row.loss for row in one.rows()], rel=1e-5)
    assert [row.grad_norm for row in many.rows()] == pytest.approx([row.grad_norm for row in one.rows()], rel=1e-4)
    expected, found = load_file(one.weights), load_file(many.weights)
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        if key.endswith("attention.self.key.bias"):  # softmax cancels it: its gradient is nothing but rounding
            continue
        torch.testing.assert_close(found[key], tensor, rtol=1e-3, atol=1e-5)


def assert_same_bits(folder: Path) -> None:
    """The sharded run that was stopped has the bits of the one that was not."""
    whole, pieces = read_run(folder / "fsdp"), read_run(folder / "pieces")
    assert pieces.starts == 2
    assert told(pieces) == told(whole)
    assert final_state(pieces) == final_state(whole)


@pytest.mark.parametrize("method", METHODS)
def test_losses_are_those_of_one_rank_and_a_stopped_run_resumes_to_the_same_bits(method, tmp_path):
    words = words_of(method, tmp_path)
    runs(words, tmp_path)
    for name in LAYOUTS:
        assert_like_one_rank(tmp_path, name)
    assert_same_bits(tmp_path)
    if method in ADAPTERS:
        assert surefoot.export(str(tmp_path / "fsdp")).adapter_difference == 0
    if method in ADAPTERS and method != "qlora":
        in_plain_peft(tmp_path)


def in_plain_peft(folder: Path) -> None:
    """The adapters of sharded ranks, read by peft, compute what the run's weights do."""
    from transformers import AutoModelForCausalLM

    tokens = torch.arange(16)[None]
    base = AutoModelForCausalLM.from_pretrained(folder / "model")
    before = base(input_ids=tokens).logits
    again = AutoModelForCausalLM.from_pretrained(folder / "model")
    with peft_unwarned():
        read = peft.PeftModel.from_pretrained(base, str(folder / "fsdp" / "export" / "adapter")).eval()
        whole = peft.get_peft_model(again, read.peft_config["default"]).eval()
    whole.load_state_dict(load_file(read_run(folder / "fsdp").weights), strict=False)
    with torch.no_grad():
        found = read(input_ids=tokens).logits
        assert torch.equal(found, whole(input_ids=tokens).logits)
    assert not torch.equal(found, before)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_preferences_are_learned_as_on_one_rank(method, tmp_path):
    model = preferences.model(tmp_path / "model")
    pairs = preferences.corpus(tmp_path / "pairs", model, count=80)
    if method == "full":
        from surefoot.training.reference import reference

        reference(str(pairs), model=str(model))
    words = [f"model={model}", f"data={pairs}", "loss=dpo", f"method={method}", f"context={preferences.CONTEXT}"]
    words += ["lr=0.005", "micro_batch_size=2", "global_batch_tokens=8"]
    runs(words, tmp_path)
    assert_same_bits(tmp_path)
    for name in LAYOUTS:
        assert_like_one_rank(tmp_path, name)
        one, many = (read_run(tmp_path / each).rows()[-1].metrics for each in ("one", name))
        assert many == pytest.approx(one, rel=1e-3, abs=1e-5)


@pytest.mark.skipif(not allocator.available(), reason="needs a C++ compiler")
@pytest.mark.parametrize("method", ["lora", "dora", "qlora", "frozen", "packed", "saved", "dpo"])
def test_plans_of_ranks_are_what_real_ranks_take(method, tmp_path):
    words = {"dpo": ["method=lora", "loss=dpo", "global_batch_tokens=8"], "packed": PACKED, "saved": SAVED}.get(
        method, [f"method={method}"]
    )
    usual = ["context=64", "micro_batch_size=4", "global_batch_tokens=512"]
    names = {word.partition("=")[0] for word in words}
    words += [word for word in usual if word.partition("=")[0] not in names]
    words = [f"model={tuned_models.llama(tmp_path / 'model')}", *words]
    made = {name: [*words, *layout] for name, layout in LAYOUTS.items()}
    cases = [Case("tests.recipes.tuned_ranks", "taken", 2, (each,)) for each in made.values()]
    for each, (real, _) in zip(made.values(), on_ranks(cases, tmp_path), strict=True):
        plan = surefoot.plan(tuned(each), on="2xcpu")
        found = plan.first.peak.peak_bytes, plan.steady.peak.peak_bytes
        for planned, measured in zip(found, real["peaks"], strict=True):
            assert abs(planned / measured - 1) <= 0.0002, (each, found, real["peaks"])
        seen = ("traffic", "collectives", "overlap")
        assert {
            account.name: account.amount for account in plan.steady.tally.accounts if account.name.startswith(seen)
        } == real["booked"]
