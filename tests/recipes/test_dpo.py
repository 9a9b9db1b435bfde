"""DPO: the loss is that of the paper and of TRL, the reference is the first model, and held-out pairs are learned."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

import surefoot
from surefoot import Recipe, load_recipe
from surefoot.cli.main import app
from surefoot.data.pairs import padded
from surefoot.errors import DataError, RecipeError
from surefoot.finetuning.dpo import as_reference, dpo_loss, dpo_metrics
from surefoot.recipe.build import build_data, build_model
from surefoot.training.init_from import with_first_weights
from surefoot.training.reference import reference
from tests import preferences, tuned_models
from tests.resumed import final_state, told, train_in_parts

pytest.importorskip("peft", reason="pip install peft")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return preferences.model(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def pairs(model, tmp_path_factory) -> Path:
    folder = preferences.corpus(tmp_path_factory.mktemp("data") / "pairs", model, count=200)
    reference(str(folder), model=str(model))
    return folder


def tuned(model: Path, pairs: Path | str, *words: str) -> Recipe:
    small = ("micro_batch_size=4", "rank=4", "max_steps=6", "save_every=2", "lr=0.005")
    given = {word.partition("=")[0] for word in words}
    fixed = [f"model={model}", f"data={pairs}", "loss=dpo", f"context={preferences.CONTEXT}"]
    return load_recipe("finetune", [*fixed, *words, *(word for word in small if word.partition("=")[0] not in given)])


def batch_of(recipe: Recipe, count: int = 4):
    data = build_data(recipe)
    return padded([data[number] for number in range(count)])


def moved(model: torch.nn.Module) -> torch.nn.Module:
    """The model after an update that changes every trained parameter."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    return model


def by_the_paper(policy, before, batch, beta):
    """Equation 7 of https://arxiv.org/abs/2305.18290, one pair and one answer at a time, without padding."""

    def log_probability(network, tokens, labels):
        count = int((labels != -100).nonzero().max()) + 1
        log = network(input_ids=tokens[None, :count]).logits.double().log_softmax(-1)[0]
        return sum(log[place, label] for place, label in enumerate(labels[:count].tolist()) if label != -100)

    losses = []
    for tokens, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        gains = [
            log_probability(policy, *row) - log_probability(before, *row) for row in zip(tokens, labels, strict=True)
        ]
        losses.append(-F.logsigmoid(beta * (gains[0] - gains[1])))
    return torch.stack(losses).sum()


@pytest.mark.parametrize("method", ["lora", "full"])
def test_the_loss_is_that_of_the_paper(method, model, pairs):
    recipe = with_first_weights(tuned(model, pairs, f"method={method}", "beta=0.3"))
    policy, before = moved(build_model(recipe)).eval(), build_model(recipe).eval()
    batch = batch_of(recipe)
    with torch.no_grad():
        found, count = recipe.loss(policy, batch)
        torch.testing.assert_close(found.double(), by_the_paper(policy, before, batch, 0.3), rtol=1e-5, atol=1e-5)
        assert count == 4
        first, _ = recipe.loss(before, batch)
    torch.testing.assert_close(first, 4 * torch.tensor(2.0).log(), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, about names that TRL uses
def test_the_loss_and_the_metrics_are_those_of_trl(model, pairs, tmp_path):
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    recipe = with_first_weights(tuned(model, pairs, "method=full", "beta=0.3"))
    before = AutoModelForCausalLM.from_pretrained(model)
    settings = trl.DPOConfig(
        output_dir=str(tmp_path), beta=0.3, use_cpu=True, report_to=[], per_device_train_batch_size=4, bf16=False
    )
    trainer = trl.DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        ref_model=before,
        args=settings,
        train_dataset=Dataset.from_list(preferences.planted(4)),
        processing_class=AutoTokenizer.from_pretrained(model, pad_token="<s>"),
    )
    theirs = next(iter(trainer.get_train_dataloader()))
    labels = theirs["input_ids"].masked_fill(theirs["completion_mask"] == 0, -100)
    # they put all chosen answers before all rejected ones
    ours = {
        "input_ids": torch.stack(theirs["input_ids"][:, :-1].chunk(2), 1),
        "labels": torch.stack(labels[:, 1:].chunk(2), 1),
    }
    moved(trainer.model).train()
    expected = trainer.compute_loss(trainer.model, theirs)
    policy = build_model(recipe).eval()
    policy.load_state_dict(trainer.model.state_dict())
    with torch.no_grad():
        from surefoot.data.pairs import bits_of
        from surefoot.finetuning.dpo import answer_log_probabilities

        ours["reference"] = bits_of(answer_log_probabilities(before.eval(), ours))
        found, count = dpo_loss(0.3)(policy, ours)
        scores = {name: float(total) / of for name, (total, of) in dpo_metrics(0.3)(policy, ours).items()}
    torch.testing.assert_close(found / count, expected.detach(), rtol=1e-5, atol=1e-5)
    logged = {name: sum(values) / len(values) for name, values in trainer._metrics["train"].items()}
    for mine, name in (("reward_chosen", "chosen"), ("reward_rejected", "rejected"), ("accuracy", "accuracies")):
        assert scores[mine] == pytest.approx(logged[f"rewards/{name}"], rel=1e-4, abs=1e-5)


# ------------------------------------------------------------------------------------------- the reference


def test_without_adapters_the_model_is_what_it_was_and_so_are_its_flags_after(tmp_path):
    dropping = tuned_models.llama(tmp_path / "llama", attention_dropout=0.5)
    recipe = with_first_weights(tuned(dropping, "", "dropout=0.5"))
    fresh, policy = build_model(recipe), build_model(recipe)
    for name, parameter in policy.named_parameters():
        if "lora_A" in name:
            parameter.requires_grad_(False)
    moved(policy).train()
    flags = {name: each.requires_grad for name, each in policy.named_parameters()}
    tokens = torch.arange(20)[None]
    with as_reference(policy):
        assert not torch.is_grad_enabled()
        here = policy(input_ids=tokens).logits
    assert torch.equal(here, fresh.eval()(input_ids=tokens).logits)
    assert {name: each.requires_grad for name, each in policy.named_parameters()} == flags
    assert all(each.training for each in policy.modules())


def test_a_reference_of_other_weights_or_pairs_and_a_damaged_one_are_refused(model, pairs, tmp_path):
    folder = preferences.corpus(tmp_path / "pairs", model, count=20)
    with pytest.raises(RecipeError, match=r"compute them once with `surefoot data reference .*`, or use method=lora"):
        tuned(model, folder, "method=full")
    done = CliRunner().invoke(app, ["data", "reference", str(folder), "--model", str(model)])
    assert done.exit_code == 0, done.output
    assert "log-probabilities of 20 pairs" in done.output
    assert tuned(model, folder, "method=full").metrics is not None
    other = preferences.model(tmp_path / "other")
    weights = other / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1000] ^= 1
    weights.write_bytes(bytes(content))
    with pytest.raises(RecipeError, match="is of other weights"):
        tuned(other, folder, "method=full")
    again = preferences.corpus(tmp_path / "again", model, count=30)
    for name in ("reference.json", "reference.safetensors"):
        (again / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(DataError, match="belongs to another corpus"):
        tuned(model, again, "method=full")
    tensors = folder / "reference.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="is damaged"):
        tuned(model, folder, "method=full")


# ------------------------------------------------------------------------------------------- five ways


@pytest.mark.sweep
@pytest.mark.parametrize("method", ["lora", "full", "qlora"])
def test_a_stopped_run_resumes_to_the_same_bits(method, model, pairs, tmp_path):
    recipe = tuned(model, pairs, f"method={method}", *(["dropout=0.1"] if method != "full" else []))
    whole = surefoot.train(recipe, path=str(tmp_path / "whole"))
    parts = train_in_parts(recipe, tmp_path / "parts", 1, 3, 4)
    assert told(whole) == told(parts)
    assert final_state(whole) == final_state(parts)


@pytest.mark.sweep
@pytest.mark.parametrize("method", ["lora", "full"])
def test_held_out_pairs_are_learned(method, model, pairs, tmp_path):
    rate = "lr=0.01" if method == "lora" else "lr=0.002"
    recipe = tuned(model, pairs, f"method={method}", "max_steps=30", rate, "micro_batch_size=8", "save_every=none")
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    scores = [row.metrics for row in run.rows() if row.metrics]
    assert scores[-1]["accuracy"] >= 0.75
    assert scores[-1]["margin"] > 2 * scores[0]["margin"] > 0
    assert scores[-1]["reward_chosen"] > scores[-1]["reward_rejected"]
    judged = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run")])
    assert judged.exit_code == 0, judged.output
    assert "accuracy" in judged.output


def test_a_plan_names_the_reference_and_books_it(model):
    plans = {method: surefoot.plan(tuned(model, "", f"method={method}")) for method in ("lora", "full")}
    assert "reference: adapters switched off" in plans["lora"].about
    assert "reference: log-probabilities computed beforehand" in plans["full"].about
    tallies = {method: plan.steady.tally for method, plan in plans.items()}
    assert tallies["lora"].total("flops/evaluate") == tallies["full"].total("flops/forward") > 0
    assert tallies["full"].total("flops/evaluate") == 0


def test_checks_find_nothing_in_a_recipe_of_preferences(model, pairs):
    for method, lr in (("lora", "0.005"), ("full", "0.0001")):
        found = surefoot.check(tuned(model, pairs, f"method={method}", f"lr={lr}"))
        assert not found.findings, found.findings


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["task=classification"], "task=causal, not classification"),
        (["loss=task"], "holds preferences, which loss=dpo learns from"),
        (["context=4"], "set context="),
        (["beta=0"], "beta=0"),
    ],
)
def test_what_does_not_fit_is_refused(words, said, model, pairs):
    base = [f"model={model}", f"data={pairs}", "loss=dpo", "context=32"]
    given = {word.partition("=")[0] for word in words}
    with pytest.raises(RecipeError, match=said):
        load_recipe("finetune", [*(word for word in base if word.partition("=")[0] not in given), *words])


def test_dpo_needs_preferences(model, tmp_path):
    tokens = tuned_models.corpus(tmp_path / "corpus")
    with pytest.raises(RecipeError, match="holds none; they are lines with prompt, chosen and"):
        tuned(model, tokens)
