"""plan: it says where the peak is, what is largest there, and what would make it smaller."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from surefoot.costs.advice import advise
from surefoot.records.usage import Holding, Usage
from surefoot.reports.console import as_text
from surefoot.reports.plan import plan_text


class Speaker(nn.Module):
    """A small body and a large vocabulary."""

    def __init__(self, vocabulary: int = 5000, keep: bool = True):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, 16), nn.Linear(16, vocabulary)
        self.keep = keep

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def speaking(loss) -> surefoot.Recipe:
    return surefoot.Recipe(
        model=Speaker,
        data=lambda: torch.utils.data.TensorDataset(torch.randint(0, 5000, (64, 32))),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        micro_batch_size=16,
        tokens_per_sample=32,
    )


def whole(model, batch):
    logits = model(batch[0]).float()
    return F.cross_entropy(logits.flatten(0, 1), batch[0].flatten(), reduction="sum"), batch[0].numel()


def test_a_plan_names_logits_as_the_largest_tensor_and_says_what_to_do():
    plan = surefoot.plan(speaking(whole))
    largest = plan.steady.largest[0]
    assert largest.tensor == "float32[512, 5000]" or largest.tensor == "float32[16, 32, 5000]"
    assert largest.size_bytes == 512 * 5000 * 4
    text = as_text(plan_text(plan, tables=True), width=300)
    assert "largest is 9.77 MiB, float32[512, 5000] of aten._log_softmax" in text
    (line,) = (line for line in text.splitlines() if line.startswith("change "))
    assert "compute it on a part of the samples" in line
    assert "the largest tensor is 9.77 MiB, float32[512, 5000]" in line


def test_following_the_advice_lowers_the_peak():
    def in_parts(model, batch):
        hidden = model.embed(batch[0]).flatten(0, 1)

        def part(rows, targets):
            return F.cross_entropy(model.head(rows), targets, reduction="sum")

        from torch.utils.checkpoint import checkpoint

        pairs = zip(hidden.split(64), batch[0].flatten().split(64), strict=True)
        return sum(checkpoint(part, *pair, use_reentrant=False) for pair in pairs), batch[0].numel()

    before, after = (surefoot.plan(speaking(loss)).steady.peak.peak_bytes for loss in (whole, in_parts))
    assert after < before / 3


def test_without_the_owner_of_the_largest_tensor_the_peak_falls_by_what_was_booked():
    """A module that keeps a large tensor for backward; without it, the peak falls by exactly its bytes."""

    class Keeper(nn.Module):
        def forward(self, x):
            big = x.repeat(1, 100)
            return x + 0 * big.sin().sum()  # sin keeps its input for backward

    class Passing(nn.Module):
        def forward(self, x):
            return x

    def planned(middle):
        model = lambda: nn.Sequential(nn.Linear(32, 32), middle(), nn.Linear(32, 1))  # noqa: E731
        return surefoot.plan(
            surefoot.Recipe(
                model=model,
                data=lambda: torch.utils.data.TensorDataset(torch.randn(64, 32)),
                loss=lambda model, batch: model(batch[0]).square().mean(),
                optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
                micro_batch_size=64,
            )
        ).steady

    kept, without = planned(Keeper), planned(Passing)
    assert kept.largest[0].module == "1"
    assert kept.largest[0].size_bytes == 64 * 3200 * 4
    owned = sum(
        account.amount
        for account in kept.tally.accounts
        if account.name.startswith("memory/") and account.name.endswith("/1")
    )
    rest = kept.peak.peak_bytes - owned
    assert owned >= kept.largest[0].size_bytes
    assert without.peak.peak_bytes <= rest + 64 * 32 * 4 * 4


@pytest.mark.parametrize(
    ("holding", "words"),
    [
        (Holding(1, "activations", "attn", "forward", "aten._softmax.default", ""), "scaled_dot_product_attention"),
        (Holding(1, "temporary", "", "update", "aten._foreach_sqrt.default", ""), "fused=true"),
        (Holding(1, "activations", "mlp", "forward", "aten.gelu.default", ""), "recompute"),
        (Holding(1, "optimizer", "mlp", "update", "", ""), "shards"),
        (Holding(1, "temporary", "", "backward", "aten.mul.Tensor", ""), ""),
    ],
)
def test_advice(holding, words):
    assert words in advise(holding)
    assert bool(words) == bool(advise(holding))


def test_recomputation_is_seen_in_memory_and_flops():
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

    class Deep(nn.Module):
        def __init__(self, again: bool):
            super().__init__()
            self.blocks, self.again = nn.ModuleList(Block() for _ in range(6)), again

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
            return x

    def planned(again: bool):
        recipe = surefoot.Recipe(
            model=lambda: Deep(again),
            data=lambda: torch.utils.data.TensorDataset(torch.randn(512, 64)),
            loss=lambda model, batch: model(batch[0]).square().mean(),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            micro_batch_size=512,
        )
        return surefoot.plan(recipe).steady, surefoot.plan(dataclasses.replace(recipe, micro_batch_size=256)).steady

    (plain, _), (again, _) = planned(False), planned(True)
    assert again.peak.peak_bytes < plain.peak.peak_bytes
    assert again.tally.total("flops/forward") == plain.tally.total("flops/forward")
    assert again.tally.total("flops/recompute") > 0 == plain.tally.total("flops/recompute")


def test_the_peaks_around_the_steps(small_recipe):
    recipe = small_recipe("cruncher")
    plan = surefoot.plan(dataclasses.replace(recipe, evaluation=recipe.data))
    states = 4 * plan.parameters
    counters = 4 * 2 * 4
    assert states <= plan.init.peak.peak_bytes < 1.5 * states
    assert plan.state_bytes == 3 * states + counters  # parameters, and AdamW's two moments
    assert plan.resume.peak.peak_bytes >= states + plan.state_bytes
    assert 3 * states < plan.evaluate.peak.peak_bytes < plan.steady.peak.peak_bytes
    assert "evaluate" in plan.evaluate.phase_peaks
    assert plan.evaluate.tally.total("flops") == plan.steady.tally.total("flops/forward")


@pytest.mark.parametrize("layers", [3, 24], ids=["all blocks", "a few blocks"])
def test_an_evaluation_is_planned_only_if_the_recipe_has_one(layers):
    def forward_only_in_training(model, batch):
        if not model.training:
            raise RuntimeError("an evaluation ran")
        return recipe.loss(model, batch)

    recipe = surefoot.load_recipe("cruncher", ["width=16", f"layers={layers}", "samples=128"])
    without = dataclasses.replace(recipe, loss=forward_only_in_training)
    plan = surefoot.plan(without)
    assert plan.evaluate == Usage()
    assert "not planned: the recipe has no evaluation" in as_text(plan_text(plan, tables=True))
    assert bool(plan.blocks) == (layers == 24)
    with pytest.raises(RuntimeError, match="an evaluation ran"):
        surefoot.plan(dataclasses.replace(without, evaluation=recipe.data))
    evaluated = surefoot.plan(dataclasses.replace(recipe, evaluation=recipe.data))
    assert evaluated.evaluate.peak.peak_bytes > 0
    assert "not planned" not in as_text(plan_text(evaluated, tables=True))
    assert evaluated.steady == plan.steady


def test_evaluation_inside_changes_nothing(small_recipe):
    from surefoot.data.batches import micro_batches
    from surefoot.step import Step
    from surefoot.world.world import World

    def losses(evaluating: bool):
        recipe = small_recipe("sentiment")
        batches = micro_batches(recipe.data(), size=recipe.micro_batch_size, seed=0)
        other = next(micro_batches(recipe.data(), size=recipe.micro_batch_size, seed=1))
        with torch.random.fork_rng(), World() as world:
            step, found = Step(recipe, world), []
            for _ in range(4):
                found.append(step(world.take(batches) for _ in range(2)).loss.item().hex())
                if evaluating:
                    assert step.evaluate([other]).loss.item() > 0
            assert step.model.training
        return found

    assert losses(True) == losses(False)


def test_the_conventions_stand_beside_the_count(small_recipe):
    plan = surefoot.plan(small_recipe("gpt"))
    layers, width, context, vocabulary = 2, 32, 32, 256
    embedding = vocabulary * width
    expected = {
        "6N": 6 * plan.parameters,
        "PaLM": 6 * plan.parameters + 12 * layers * width * context,
        "torchtitan": 6 * (plan.parameters - embedding) + 12 * layers * width * context,
        "Megatron-Bridge": 6 * (plan.parameters - embedding) + 6 * layers * width * context,
    }
    counted = plan.flops_per_token.pop("counted")
    assert plan.flops_per_token == expected
    tally = plan.steady.tally
    assert counted * plan.tokens_per_step == tally.total("flops") - tally.total("flops/recompute")
    assert tally.total("flops/recompute") == 2 * layers * width * context * plan.tokens_per_step  # attention's scores
    assert set(surefoot.plan(small_recipe("cruncher")).flops_per_token) == {"counted", "6N"}


@pytest.mark.parametrize("form", [tuple, dict, None], ids=["arguments", "named", "tensor"])
def test_a_bare_module_and_a_batch_can_be_planned(form):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 8), nn.Linear(8, 3)

        def forward(self, tokens, scale=None):
            out = self.head(self.embed(tokens))
            return {"logits": out if scale is None else out * scale[:, None, None]}

    tokens, scale = torch.zeros(4, 6, dtype=torch.long), torch.ones(4)
    batch = {tuple: (tokens, scale), dict: {"tokens": tokens, "scale": scale}, None: tokens}[form]
    recipe = surefoot.recipe_of(Two, batch)
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.parameters == 10 * 8 + 8 * 3 + 3
    assert plan.tokens_per_step == 24
    assert plan.steady.tally.total("flops/forward") == 2 * 24 * 8 * 3
    assert plan.steady == profile.steady


def test_a_module_and_a_batch_are_planned_without_a_recipe():
    module, batch = nn.Linear(16, 4), torch.zeros(8, 16)
    before = module.weight.clone()
    recipe = surefoot.recipe_of(lambda: nn.Linear(16, 4), batch)
    plan = surefoot.plan(module, batch)
    assert surefoot.plan(lambda: nn.Linear(16, 4), batch) == surefoot.plan(recipe)
    assert plan.steady.tally == surefoot.plan(recipe).steady.tally
    assert plan.parameters == 68
    assert surefoot.profile(surefoot.recipe_of(module, batch), timed_steps=1).steady == plan.steady
    assert torch.equal(module.weight, before)
    assert module.weight.grad is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((nn.Linear(4, 4),), "a module and a batch"),
        ((nn.Linear(4, 4), torch.ones(())), r"this one is a tensor of shape \[\]"),
        ((nn.Linear(4, 4), []), "this one is a list"),
        ((surefoot.recipe_of(nn.Linear(4, 4), torch.ones(2, 4)), torch.ones(2, 4)), "leave out the batch"),
    ],
)
def test_what_is_no_module_with_a_batch_is_refused(given, said):
    with pytest.raises(surefoot.SurefootError, match=said):
        surefoot.plan(*given)


def test_a_hugging_face_config_in_a_folder_can_be_planned(tmp_path):
    pytest.importorskip("transformers")
    import json

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {"model_type": "llama", "vocab_size": 100, "num_key_value_heads": 2, **shape}
    (tmp_path / "config.json").write_text(json.dumps(config))
    recipe = surefoot.load_recipe("hf", [f"config={tmp_path}", "context=16", "micro_batch_size=2"])
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.tokens_per_step == 32
    assert plan.steady == profile.steady


@pytest.mark.sweep
@pytest.mark.parametrize("named", ["dtype", "torch_dtype"])
@pytest.mark.parametrize(
    ("precision", "size", "said"),
    [
        ("32-true", 4, "parameters in float32 (precision=32-true), not in the config's bfloat16; precision=bf16-true"),
        ("bf16-mixed", 4, "parameters in float32 (precision=bf16-mixed), not in the config's bfloat16"),
        ("bf16-true", 2, ""),
    ],
)
def test_the_precision_of_a_recipe_wins_over_that_of_a_config(tmp_path, named, precision, size, said):
    pytest.importorskip("transformers")
    import json

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {"model_type": "llama", "vocab_size": 100, "num_key_value_heads": 2, named: "bfloat16", **shape}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = [f"config={tmp_path}", "context=16", *([f"precision={precision}"] if precision != "32-true" else [])]
    recipe = surefoot.load_recipe("hf", words)
    plan = surefoot.plan(recipe)
    assert plan.steady.tally.total("memory/parameters") == size * plan.parameters
    assert said in plan.about
    assert bool(said) == ("config's" in plan.about)
    assert plan.steady == surefoot.profile(recipe, timed_steps=1).steady


def test_a_folder_without_a_config_is_said_to_be_one(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(surefoot.SurefootError, match=r"no config\.json in"):
        surefoot.load_recipe("hf", [f"config={tmp_path}"])


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"model_type": "no such model"}',
        b'{"model_type": ["llama"]}',
        b'{"model_type": "llama", "hidden_size": "wide"}',
        b'{"model_type": "llama", "hidden_size": 31, "num_attention_heads": 4, "num_hidden_layers": 1}',
        b'{"model_type": "llama", "num_hidden_layers": -1, "vocab_size": -5}',
    ],
    ids=["cut", "not UTF-8", "deep", "a list", "empty", "unknown", "not a name", "wrong type", "odd", "negative"],
)
def test_a_config_that_makes_no_model_is_refused_by_name(tmp_path, content):
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(surefoot.SurefootError, match=r"config\.json"):
        surefoot.plan(surefoot.load_recipe("hf", [f"config={tmp_path}", "context=16"]))


def test_a_gpu_would_reserve_more_than_is_live_and_the_allocator_forgets_nothing(small_recipe):
    plan = surefoot.plan(small_recipe("gpt"))
    live = plan.steady.peak.peak_bytes - plan.steady.tally.total("memory/workspace")
    for reserved in plan.reserved_bytes.values():
        assert live <= reserved < 20 * live
        assert reserved % (2 << 20) == 0


def test_the_steps_of_a_run_follow_from_the_tokens_of_all_ranks():
    words = ["width=16", "layers=3", "samples=128", "micro_batch_size=4", "max_steps=none", "max_tokens=80"]
    recipe = surefoot.load_recipe("cruncher", words)
    assert [surefoot.plan(recipe, on=on).steps for on in ("1xcpu", "2xcpu")] == [20, 10]


def test_a_plan_without_a_resume_is_the_same_but_for_it():
    recipe = speaking(whole)
    plan = surefoot.plan(recipe)
    assert plan.resume != Usage()
    assert surefoot.plan(recipe, resume=False) == dataclasses.replace(plan, resume=Usage())
