"""Knobs of the recipe finetune: the losses of peft and transformers, a plan, and an exact resume for each."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import surefoot
from surefoot import Recipe, load_recipe
from surefoot.data.batches import batches_of
from surefoot.errors import RecipeError
from surefoot.finetuning.methods import four_bit_names, peft_unwarned, targets_of
from surefoot.meters import allocator
from surefoot.randomness import derive, seed_all
from surefoot.recipe.build import build_model
from surefoot.step import Step
from surefoot.training.init_from import with_first_weights
from surefoot.world.world import World
from tests import tuned_models
from tests.counted import counted
from tests.resumed import final_state, told, train_in_parts

peft = pytest.importorskip("peft", reason="pip install peft")
transformers = pytest.importorskip("transformers", reason="pip install transformers")
STEPS = 4
KNOBS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "rslora": (["rslora=true"], {"use_rslora": True}),
    "modules_to_save": (["modules_to_save=lm_head,embed_tokens"], {"modules_to_save": ["lm_head", "embed_tokens"]}),
    "targets": (
        ["targets=*.1.self_attn.[qv]_proj,down_proj"],
        {"target_modules": r".*\.1\.self_attn\.[qv]_proj|.*down_proj"},
    ),
    "neftune": (["neftune=5"], {}),
    "lora_plus": (["lora_plus=16"], {}),
    "adafactor": (["optimizer=adafactor", "weight_decay=0.1"], {}),
    "muon": (["optimizer=muon", "weight_decay=0.1"], {}),
    "weight_decay": (["weight_decay=0.5"], {}),
    "linear": (["schedule=linear", "warmup=0", "floor=0"], {}),
    "cosine": (["schedule=cosine", "warmup=0", "floor=0"], {}),
    "constant": (["schedule=constant", "warmup=0"], {}),
}
"""The words of the recipe, and the arguments of peft's LoraConfig that mean the same."""
if not hasattr(torch.optim, "Muon"):  # before torch 2.9
    del KNOBS["muon"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tuned_models.llama(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory) -> Path:
    return tuned_models.corpus(tmp_path_factory.mktemp("data") / "corpus", tokens=800, held_out=100)


def tuned(folder: Path, *words: str) -> Recipe:
    small = ("context=16", "micro_batch_size=2", "rank=2", f"max_steps={STEPS}", "lr=0.01")
    given = {word.partition("=")[0] for word in words}
    return load_recipe(
        "finetune", [f"model={folder}", *words, *(word for word in small if word.partition("=")[0] not in given)]
    )


def by_hand(recipe: Recipe, folder: Path, first: dict[str, torch.Tensor], name: str, config: dict[str, Any]) -> list:
    """The losses of a plain loop with peft and transformers, from the same first weights and on the same batches."""
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    lora = peft.LoraConfig(
        **{"r": 2, "lora_alpha": 32, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **config}
    )
    with peft_unwarned():
        model = peft.get_peft_model(base, lora)
    model.load_state_dict(first)
    if name == "neftune":
        transformers.integrations.neftune.activate_neftune(model, 5.0)
    model.train()
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = loraplus(model) if name == "lora_plus" else optimizer_of(name, trained)
    if name in ("linear", "cosine", "constant"):
        follow: Any = transformers.get_scheduler(name, optimizer, num_warmup_steps=0, num_training_steps=STEPS)
    else:
        follow = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.schedule(step, STEPS))
    losses, batches = [], batches_of(recipe)
    for number in range(STEPS):
        ids, labels = next(batches)[:2]
        seed_all(derive(recipe.seed, "step", number, "rank", 0, "micro-batch", 0))
        loss = F.cross_entropy(model(input_ids=ids).logits.flatten(0, 1), labels.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        follow.step()
        losses.append(loss.item())
    return losses


def loraplus(model: torch.nn.Module) -> torch.optim.Optimizer:
    """As peft makes it."""
    from peft.optimizers import create_loraplus_optimizer

    return create_loraplus_optimizer(model, torch.optim.AdamW, lr=0.01, loraplus_lr_ratio=16, loraplus_weight_decay=0.0)


def optimizer_of(name: str, trained: list[torch.Tensor]) -> torch.optim.Optimizer:
    """The optimizer that a knob means."""
    if name == "adafactor":
        return torch.optim.Adafactor(trained, lr=0.01, weight_decay=0.1)
    if name == "muon":
        return torch.optim.Muon(trained, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    return torch.optim.AdamW(trained, lr=0.01, weight_decay=0.5 if name == "weight_decay" else 0.0)


@pytest.mark.parametrize("name", KNOBS)
def test_losses_are_those_of_peft_and_transformers(name, folder, tokens):
    words, config = KNOBS[name]
    recipe = with_first_weights(tuned(folder, f"data={tokens}", *words))
    world, batches = World(), batches_of(recipe)
    step = Step(recipe, world)
    first = {key: each.clone() for key, each in step.model.state_dict().items()}
    losses = [step([next(batches)]).loss.item() for _ in range(STEPS)]
    plain = by_hand(recipe, folder, first, name, config)
    assert losses == pytest.approx(plain, abs=1e-5)


@pytest.mark.sweep
@pytest.mark.skipif(not allocator.available(), reason="needs a C++ compiler")
@pytest.mark.parametrize("method", ["lora", "qlora"])
@pytest.mark.parametrize("name", KNOBS)
def test_a_plan_is_within_0_02_percent(name, method, folder):
    recipe = tuned(folder, *KNOBS[name][0], f"method={method}", "context=64", "micro_batch_size=8", "init_from=none")
    assert surefoot.plan(recipe).steady.peak.peak_bytes == pytest.approx(counted(recipe), rel=2e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("name", KNOBS)
def test_a_run_whose_last_epoch_ends_inside_a_step_resumes_to_the_same_bits(name, folder, tokens, tmp_path):
    recipe = tuned(folder, f"data={tokens}", *KNOBS[name][0], "micro_batch_size=20", "max_epochs=1.5", "max_steps=none")
    steps = recipe.steps()
    assert steps * 20 > 1.5 * recipe.epoch_samples
    whole = surefoot.train(recipe, path=str(tmp_path / "whole"))
    parts = train_in_parts(recipe, tmp_path / "parts", 1, 2)
    assert told(whole) == told(parts)
    assert final_state(whole) == final_state(parts)


def test_the_noise_of_neftune_stays_out_of_evaluation(folder, tokens):
    recipe = with_first_weights(tuned(folder, f"data={tokens}", "neftune=5"))
    model, (ids, *_) = build_model(recipe), next(batches_of(recipe))
    outputs = [model.train(training)(input_ids=ids).logits for training in (True, True, False, False)]
    assert not torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[2], outputs[3])


def test_modules_that_are_trained_whole_stay_out_of_4_bits_and_have_no_adapters(folder):
    model = build_model(tuned(folder, "method=qlora", "modules_to_save=mlp", "init_from=none"))
    trained = {name for name, each in model.named_parameters() if each.requires_grad}
    assert {name for name in trained if ".mlp." in name} == {name for name in trained if ".modules_to_save." in name}
    assert not [name for name, each in model.named_parameters() if ".mlp." in name and each.dtype == torch.uint8]
    assert [name for name, each in model.named_parameters() if "q_proj" in name and each.dtype == torch.uint8]


def with_optimizer(recipe: Recipe) -> torch.optim.Optimizer:
    return recipe.optimizer(build_model(recipe).parameters())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rslora=true", "method=full"], "rslora belongs to adapters: set method to lora, dora, qlora, not full"),
        (["lora_plus=16", "method=full"], "lora_plus belongs to adapters: set method to lora, dora, qlora, not full"),
        (["modules_to_save=lm_haed"], "has no such module; did you mean 'lm_head'?"),
        (
            ["optimizer=muon", "method=full"],
            "optimizer=muon updates matrices, and 5 of the 21 trained tensors are none",
        ),
        (["targets=*.9.*"], r"targets=\*.9.\*: no linear layer has such a path; the paths are model.layers.0."),
    ],
)
def test_what_does_not_fit_is_refused(words, said, folder):
    with pytest.raises(RecipeError, match=said):
        with_optimizer(tuned(folder, *words))


def test_weights_that_are_tied_are_not_trained_as_a_copy(tmp_path):
    tied = tuned_models.llama(tmp_path / "tied", tie_word_embeddings=True)
    with pytest.raises(
        RecipeError, match=r"its weights are also model.embed_tokens.weight, and peft would train a copy"
    ):
        build_model(tuned(tied, "modules_to_save=lm_head", "init_from=none"))


def test_patterns_name_layers_by_their_paths(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert targets_of(model, "*.0.mlp.*, q_proj") == [
        *(f"model.layers.0.mlp.{each}_proj" for each in ("gate", "up", "down")),
        "q_proj",
    ]
    assert len(four_bit_names(model, ["mlp"])) == 8
