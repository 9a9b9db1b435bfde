"""The recipe finetune: what each method trains, that plans agree, that runs resume, and what it refuses."""

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import surefoot
from surefoot import Recipe, load_recipe
from surefoot.cli.main import app
from surefoot.errors import RecipeError
from surefoot.hardware import datasheet
from surefoot.meters import allocator
from surefoot.recipe.build import build_data, build_model
from surefoot.records.search import Budget
from surefoot.units import seconds_text
from tests import tuned_models
from tests.counted import counted
from tests.resumed import final_state, told, train_in_parts

pytest.importorskip("peft", reason="pip install peft")
METHODS = ("full", "lora", "dora", "qlora", "frozen")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tuned_models.llama(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory) -> Path:
    return tuned_models.corpus(tmp_path_factory.mktemp("data") / "corpus")


def tuned(folder: Path, *words: str) -> Recipe:
    small = ("context=16", "micro_batch_size=2", "rank=2", "max_steps=6", "save_every=2", "lr=0.01")
    given = {word.partition("=")[0] for word in words}
    return load_recipe(
        "finetune", [f"model={folder}", *words, *(word for word in small if word.partition("=")[0] not in given)]
    )


def trained(model: torch.nn.Module) -> set[str]:
    return {name for name, each in model.named_parameters() if each.requires_grad}


# ------------------------------------------------------------------------------------------- methods


@pytest.mark.sweep
@pytest.mark.parametrize("method", METHODS)
def test_only_what_the_method_names_moves(method, folder, tokens, tmp_path):
    recipe = tuned(folder, f"method={method}", f"data={tokens}", "max_steps=2")
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    before, after = load_file(folder / "model.safetensors"), load_file(run.weights)
    moved = {"full": lambda _: True, "frozen": lambda name: name == "lm_head.weight"}.get(method, lambda _: False)
    for name, first in before.items():
        here = f"base_model.model.{name}"
        found = next(
            after[each] for each in (here, here.replace(".weight", ".base_layer.weight"), name) if each in after
        )
        if found.dtype == torch.uint8:
            assert method == "qlora"
        else:
            assert torch.equal(first, found) is not moved(name), name
    if method in ("lora", "dora", "qlora"):
        assert all(each.abs().sum() > 0 for name, each in after.items() if "lora_B" in name)


def test_bitfit_trains_biases_alone_and_refuses_a_model_without(folder, tmp_path):
    bert = tuned_models.bert(tmp_path / "bert")
    model = build_model(tuned(bert, "task=masked", "method=bitfit"))
    assert trained(model)
    assert all(name.endswith("bias") for name in trained(model))
    with pytest.raises(
        RecipeError, match="method=bitfit trains biases, and LlamaForCausalLM has none; use method=lora"
    ):
        build_model(tuned(folder, "method=bitfit"))


@pytest.mark.parametrize("method", ["lora", "frozen", "bitfit"])
def test_the_new_head_of_a_classifier_is_always_trained(method, tmp_path):
    bert = tuned_models.bert(tmp_path / "bert", "BertForSequenceClassification")
    model = build_model(tuned(bert, "task=classification", f"method={method}"))
    assert [name for name in trained(model) if "classifier" in name and name.endswith("weight")]


def test_rank_alpha_and_targets_reach_peft(folder):
    model = build_model(tuned(folder, "rank=3", "alpha=7", "targets=q_proj, v_proj"))
    config = model.peft_config["default"]
    assert (config.r, config.lora_alpha, set(config.target_modules)) == (3, 7, {"q_proj", "v_proj"})
    assert all("q_proj.lora" in name or "v_proj.lora" in name for name in trained(model))


# ------------------------------------------------------------------------------------------- plans


@pytest.mark.sweep
@pytest.mark.parametrize("method", METHODS)
def test_a_plan_says_what_is_trained_frozen_added_and_quantised(method, folder):
    recipe = tuned(folder, f"method={method}")
    plan = surefoot.plan(recipe)
    model = build_model(recipe)
    count = sum(each.numel() for each in model.parameters() if each.requires_grad)
    said = "\n".join(plan.choices)
    assert f"trained: {count:,} of {plan.parameters:,} parameters" in said
    assert ("frozen: " in said) is (method != "full")
    assert ("adapter: " in said) is (method in ("lora", "dora", "qlora"))
    assert ("4 bits: " in said) is (method == "qlora")
    whole = sum(each.numel() for each in load_file(folder / "model.safetensors").values())
    assert plan.parameters == whole + (count if method in ("lora", "dora", "qlora") else 0)


def test_a_plan_of_fake_tensors_leaves_nothing_fake_behind(folder, tokens, tmp_path):
    recipe = tuned(folder, "method=qlora", f"data={tokens}", "max_steps=1")
    plan = surefoot.plan(recipe)
    assert surefoot.train(recipe, path=str(tmp_path / "run"), plan=plan).status == "finished"


# ------------------------------------------------------------------------------------------- runs


@pytest.mark.sweep
@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_a_stopped_run_of_adapters_resumes_to_the_same_bits(method, folder, tokens, tmp_path):
    recipe = tuned(folder, f"method={method}", f"data={tokens}", "dropout=0.1")
    whole = surefoot.train(recipe, path=str(tmp_path / "whole"))
    parts = train_in_parts(recipe, tmp_path / "parts", 1, 3, 4)
    assert told(whole) == told(parts)
    assert final_state(whole) == final_state(parts)
    assert whole.weights_digest == parts.weights_digest


def test_adapters_learn_and_the_base_is_the_folders(folder, tokens, tmp_path):
    run = surefoot.train(
        tuned(folder, f"data={tokens}", "max_steps=40", "lr=0.02", "rank=8"), path=str(tmp_path / "run")
    )
    held_out = [row.evaluation_loss for row in run.rows() if row.evaluation_loss is not None]
    assert held_out[-1] < held_out[0] - 0.05
    assert "21 of the model's 21 tensors taken" in (Path(run.path) / "events.jsonl").read_text()


EIGHT = ("method=full", "optimizer=adamw8bit")


def test_states_of_8_bits_are_planned_and_resume_to_the_same_bits(tokens, tmp_path):
    wide = tuned_models.llama(tmp_path / "wide", hidden_size=64, intermediate_size=256)
    recipe = tuned(wide, f"data={tokens}", *EIGHT)
    plan = surefoot.plan(recipe)
    counts = [each.numel() for each in build_model(recipe).parameters()]
    states = sum(2 * n + 2 * 4 * -(n // -256) if n >= 4096 else 2 * 4 * n for n in counts)
    assert plan.steady.tally.total("memory/optimizer") in (states, states + 2 * 4 * 256)  # with both tables
    assert not plan.assumptions
    run = surefoot.train(recipe, path=str(tmp_path / "whole"), plan=plan)
    parts = train_in_parts(recipe, tmp_path / "parts", 1, 3)
    assert told(run) == told(parts)
    assert final_state(run) == final_state(parts)


def test_states_of_8_bits_are_those_of_bitsandbytes(folder):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    results = []
    for make in (
        tuned(folder, *EIGHT, "lr=0.01").optimizer,
        partial(bitsandbytes.optim.AdamW8bit, lr=0.01, weight_decay=0.0),
    ):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(80, 80))
        optimizer = make([weight])
        for _ in range(3):
            (weight**2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append(weight.detach().clone())
    assert torch.equal(*results)


def test_states_of_8_bits_refuse_sharded_parameters(folder):
    with pytest.raises(RecipeError, match="adamw8bit does not work on sharded parameters: set dp_shard=1"):
        surefoot.plan(tuned(folder, *EIGHT), on="2xcpu")


def test_a_head_in_another_format_than_adapters_is_refused_on_shards_and_not_on_replicas(tmp_path):
    bert = tuned_models.bert(tmp_path / "bert", "BertForSequenceClassification")
    words = ["task=classification", "precision=bf16-true"]
    with pytest.raises(RecipeError, match="in bfloat16 and float32 together: set dp_shard=1 for plain replicas"):
        surefoot.plan(tuned(bert, *words), on="2xcpu")
    assert surefoot.plan(tuned(bert, *words, "dp_shard=1"), on="2xcpu").layout == "dp_replicate=2"


def test_packed_documents_do_not_see_each_other(folder, tokens):
    recipe = tuned(folder, f"data={tokens}", "packed=true", "context=64", "method=full")
    model, row = build_model(recipe).eval(), build_data(recipe)[0]
    tokens_of, labels, positions, documents = (each[None].clone() for each in row)
    assert documents.max() > 0
    first, _ = recipe.loss(model, (tokens_of, labels, positions, documents))
    outside = documents != 1
    changed = torch.where(outside, (tokens_of + 1) % tuned_models.VOCABULARY, tokens_of)
    only = labels.masked_fill(outside, -100)
    before, _ = recipe.loss(model, (tokens_of, only, positions, documents))
    after, _ = recipe.loss(model, (changed, only, positions, documents))
    assert first > before > 0
    assert torch.equal(before, after)


@pytest.mark.skipif(not allocator.available(), reason="needs a C++ compiler")
@pytest.mark.parametrize("method", ["lora", "full", "qlora"])
def test_a_plan_of_packed_rows_is_what_a_step_takes(method, folder, tokens):
    recipe = tuned(
        folder,
        f"data={tokens}",
        "packed=true",
        "context=64",
        "micro_batch_size=4",
        f"method={method}",
        "init_from=none",
    )
    batch = 4 * 64 * 4 * 8  # its four columns are numpy's memory, which torch's allocator does not count
    planned = surefoot.plan(recipe).steady.peak.peak_bytes - batch
    assert planned == pytest.approx(counted(recipe), rel=2e-4)


def test_a_run_on_packed_rows_resumes_to_the_same_bits(folder, tokens, tmp_path):
    recipe = tuned(folder, f"data={tokens}", "packed=true", "context=64", "dropout=0.1")
    whole = surefoot.train(recipe, path=str(tmp_path / "whole"))
    parts = train_in_parts(recipe, tmp_path / "parts", 1, 3)
    assert told(whole) == told(parts)
    assert final_state(whole) == final_state(parts)


def test_columns_of_a_file_are_the_models_arguments(tmp_path):
    bert = tuned_models.bert(tmp_path / "bert", "BertForSequenceClassification")
    rows = {"input_ids": torch.randint(3, 64, (12, 16)), "labels": torch.arange(12) % 3}
    save_file(rows, tmp_path / "rows.safetensors")
    recipe = tuned(bert, "task=classification", f"data={tmp_path / 'rows.safetensors'}")
    assert surefoot.train(recipe, path=str(tmp_path / "run")).status == "finished"


def test_labels_of_a_file_are_the_next_tokens_already(folder, tmp_path):
    tokens = torch.randint(0, tuned_models.VOCABULARY, (4, 16), generator=torch.Generator().manual_seed(0))
    rows = {"input_ids": tokens, "labels": torch.nn.functional.pad(tokens[:, 1:], (0, 1), value=-100)}
    save_file(rows, tmp_path / "rows.safetensors")
    recipe = tuned(folder, f"data={tmp_path / 'rows.safetensors'}", "method=full")
    model, samples = build_model(recipe).eval(), build_data(recipe)
    batch = {name: torch.stack([samples[number][name] for number in range(4)]) for name in rows}
    summed, count = recipe.loss(model, batch)
    theirs = model(input_ids=tokens, labels=tokens).loss  # transformers shifts
    torch.testing.assert_close(summed / count, theirs)


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["task=seq2seq"], "llama has no head for task=seq2seq in transformers; it has causal, classification"),
        (["targets=nothing"], "the linear layers of LlamaForCausalLM are down_proj, gate_proj"),
        (["data=nowhere"], "there is no data=nowhere; name a file or folder"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(words, said, folder):
    with pytest.raises(RecipeError, match=said):
        build_model(tuned(folder, *words))


def test_a_corpus_of_another_vocabulary_is_refused(tmp_path, tokens):
    small = tuned_models.llama(tmp_path / "llama", vocab_size=50)
    with pytest.raises(RecipeError, match=r"has a vocabulary of 64 and .* one of 50: use the model's tokenizer"):
        tuned(small, f"data={tokens}")


def test_training_without_weights_is_refused_unless_asked_for(folder, tokens, tmp_path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(RecipeError, match=r"has no model\.safetensors"):
        surefoot.train(tuned(tmp_path / "bare", f"data={tokens}"), path=str(tmp_path / "run"))
    recipe = tuned(tmp_path / "bare", f"data={tokens}", "init_from=none", "max_steps=1")
    assert surefoot.train(recipe, path=str(tmp_path / "random")).status == "finished"


def test_a_plan_from_the_command_line(folder):
    made = CliRunner().invoke(app, ["plan", "finetune", f"model={folder}", "method=qlora", "context=16", "--tables"])
    assert made.exit_code == 0, made.output
    assert "4 bits: " in made.output


def test_a_search_finds_the_method_that_trains_most_and_skips_one_that_cannot_be(folder):
    found = surefoot.what_fits(
        tuned(folder, "context=16"),
        budget=Budget(memory_bytes=440_000),  # `dora` takes 426,088 bytes and `full` 452,264
        fixed={"micro_batch_size", "recompute"},
        largest="method",
    )
    assert any("method=bitfit is left out" in note for note in found.notes)
    assert {answer.trial.knobs["method"] for answer in found.answers} == {"dora"}
    assert found.answers[0].beyond.knobs["method"] == "full"


@pytest.mark.sweep
def test_the_largest_method_is_the_last_that_fits_and_not_the_one_with_most_parameters(folder):
    found = surefoot.what_fits(
        tuned(folder, "context=16"),
        budget=Budget(memory_bytes=2**30),
        fixed={"micro_batch_size", "recompute"},
        largest="method",
    )
    most = max(found.trials, key=lambda trial: trial.parameters)
    assert most.knobs["method"] == "dora"
    assert found.answers[0].question == "largest method"
    assert {answer.trial.knobs["method"] for answer in found.answers} == {"full"}


def test_a_plan_compares_the_run_with_training_from_scratch(folder):
    words = ["plan", "finetune", f"model={folder}", "method=qlora", "context=16", "precision=bf16-mixed"]
    made = CliRunner().invoke(app, [*words, "max_steps=100", "--on", "2xh100-sxm", "--tables"])
    assert made.exit_code == 0, made.output
    said = " ".join(made.output.split())
    whole = sum(each.numel() for each in load_file(folder / "model.safetensors").values())
    assert "this run: 3,200 tokens, " in said
    assert f"from scratch at 20 tokens per parameter: {20 * whole:,} tokens, " in said
    seconds = 6 * whole * 20 * whole / (2 * datasheet("h100-sxm").dense_flops["bf16"] * 0.5)
    assert f"tokens, {seconds_text(seconds)}, " in said
    assert "dollars on as many devices, by 6ND at 50% of their bf16 peak" in said


@pytest.mark.sweep
@pytest.mark.parametrize("words", [["loss=dpo"], ["init_from=none"]])
def test_a_run_of_pairs_or_without_first_weights_is_not_compared(words, folder):
    plan = surefoot.plan(tuned(folder, *words), on="h100-sxm")
    assert plan.cost is not None
    assert not [each for each in plan.choices if "from scratch" in each]


def test_experts_that_stand_in_files_one_by_one_are_taken_whole(tmp_path):
    import transformers

    config = transformers.MixtralConfig(
        **tuned_models.TEXT,
        intermediate_size=32,
        num_key_value_heads=1,
        num_local_experts=2,
        max_position_embeddings=64,
    )
    model = transformers.MixtralForCausalLM(config)
    folder = tuned_models.saved(model, tmp_path / "mixtral")
    assert any(".experts.1." in name for name in load_file(folder / "model.safetensors"))
    recipe = tuned(folder, "method=full", "lr=0", "max_steps=1")
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    after, before = load_file(run.weights), model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert "names converted by transformers" in (tmp_path / "run" / "events.jsonl").read_text()


def test_products_with_4_bit_weights_are_counted(folder):
    four, whole = (surefoot.plan(tuned(folder, f"method={method}")).steady.tally for method in ("qlora", "lora"))
    assert four.total("flops/forward") == whole.total("flops/forward") > 0
