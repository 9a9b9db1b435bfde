"""Reuse: a plan from a few blocks is the plan of all, to the byte; where it cannot be, all are run."""

import dataclasses
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

import surefoot
from surefoot import Recipe
from surefoot.costs.unroll import Irregular
from surefoot.planning import recipe_plan as way
from surefoot.planning.repeated_blocks import find_repeats

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    monkeypatch.setattr(way, "FEWEST", 7)


class Block(nn.Module):
    def __init__(self, width: int, position: int = 0) -> None:
        super().__init__()
        self.position = position
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v = self.mix(self.norm(x)).unflatten(-1, (2, -1)).transpose(1, 2).chunk(3, -1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Model(nn.Module):
    """Blocks between an embedding and a head; what a test wants otherwise, it overrides."""

    def __init__(self, blocks, recompute=False) -> None:
        super().__init__()
        self.recompute = recompute
        self.embed, self.blocks, self.head = nn.Embedding(40, 16), nn.ModuleList(blocks), nn.Linear(16, 40)

    def forward(self, tokens):
        x = self.embed(tokens)
        for position, block in enumerate(self.blocks):
            x = self.call(position, block, x)
        return self.head(x)

    def call(self, position, block, x):
        return checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)


def loss(model, batch):
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="sum"), targets.numel()


def recipe(build=lambda: Model(Block(16, n) for n in range(9)), **settings) -> Recipe:
    data = TensorDataset(torch.zeros(8, 6, dtype=torch.long), torch.zeros(8, 6, dtype=torch.long))
    usual = {"optimizer": torch.optim.AdamW, "loss": loss, "micro_batch_size": 2, "tokens_per_sample": 6}
    return Recipe(model=build, data=lambda: data, **{**usual, **settings})


def blocks_of(recipe: Recipe) -> str:
    """Plans a recipe with and without reuse, which must give the same, and returns which blocks were run."""
    some, all_of_them = surefoot.plan(recipe), surefoot.plan(recipe, reuse=False)
    assert not all_of_them.blocks
    assert dataclasses.replace(some, blocks="") == all_of_them
    return some.blocks


REUSED = "9 blocks of blocks from runs with 3, 4 and 5"
OPTIMIZERS = {
    "plain": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters),
}


@pytest.mark.sweep
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(optimizer):
    assert blocks_of(recipe(optimizer=OPTIMIZERS[optimizer])) == REUSED


@pytest.mark.sweep
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true"])
def test_every_precision_with_accumulation_and_clipping(precision):
    assert blocks_of(recipe(precision=precision, global_batch_tokens=24, max_grad_norm=1.0)) == REUSED


def test_recomputation():
    assert blocks_of(recipe(lambda: Model((Block(16) for _ in range(9)), recompute=True))) == REUSED


def test_blocks_of_two_kinds_in_turn_and_some_of_their_own():
    class Gated(Block):
        def forward(self, x):
            return x + F.silu(self.out(self.norm(x)))

    def build():
        return Model([nn.Linear(16, 16), *(kind(16) for _ in range(8) for kind in (Block, Gated)), nn.Linear(16, 16)])

    assert blocks_of(recipe(build)) == "16 blocks of blocks from runs with 3, 4 and 5"


def test_two_stacks_of_the_same_depth_are_shortened_together():
    class Two(Model):
        def __init__(self):
            super().__init__(Block(16) for _ in range(8))
            self.others = nn.Sequential(
                *(nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)) for _ in range(8))
            )

        def forward(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.others(x))

    assert blocks_of(recipe(Two)) == "8 blocks of blocks and 8 blocks of others from runs with 3, 4 and 5"


def test_a_choice_of_elements_is_assumed_as_often():
    class Routed(Block):
        def forward(self, x):
            rows = (x.flatten(0, 1)[:, 0] > 0).nonzero().flatten()
            return x + self.out(x.flatten(0, 1)[rows]).sum()

    assert blocks_of(recipe(lambda: Model(Routed(16) for _ in range(9)), density=0.5)) == REUSED


def test_blocks_that_keep_what_they_made_for_the_next_step():
    class Keeping(Block):
        kept = None

        def forward(self, x):
            out = super().forward(x if self.kept is None else x + self.kept)
            self.kept = out.detach().tanh()
            return out

    assert blocks_of(recipe(lambda: Model(Keeping(16) for _ in range(9)))) == REUSED


def test_hugging_face_models():
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_hidden_layers": 9}
    config = transformers.LlamaConfig(**shape, num_key_value_heads=1, vocab_size=40, use_cache=False)

    def hf_loss(model, batch):
        return model(input_ids=batch[0], labels=batch[1]).loss

    found = blocks_of(recipe(lambda: transformers.LlamaForCausalLM(config), loss=hf_loss))
    assert found == "9 blocks of model.layers from runs with 3, 4 and 5"


@pytest.mark.sweep
@pytest.mark.parametrize("dora", [False, True])
def test_blocks_with_adapters(dora):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["mix", "out"], use_dora=dora)
    found = blocks_of(recipe(adapt=lambda model: peft.get_peft_model(model, config)))
    assert found == "9 blocks of base_model.model.blocks from runs with 3, 4 and 5"


class Named(Block):
    """A block that knows its own name, or one that differs by more than its position."""

    def __init__(self, name: str) -> None:
        super().__init__(16)
        self.name = name


def test_blocks_that_hold_their_own_names():
    assert blocks_of(recipe(lambda: Model(Named(f"blocks.{n}.mix") for n in range(9)))) == REUSED


# ------------------------------------------------------------------------------------------- what must not be reused


@pytest.mark.parametrize("name", ["blocks.{other}.mix", "blocks{n}.mix", "blocks.{n}.{n}"])
def test_blocks_with_names_of_their_own_are_not_taken_for_alike(name):
    named = lambda: Model(Named(name.format(n=n, other=7 * n % 9)) for n in range(9))  # noqa: E731
    assert not find_repeats(named(), fewest=7)


def test_blocks_that_differ_are_not_taken_for_alike():
    assert blocks_of(recipe(lambda: Model(nn.Linear(16, 16, bias=n % 5 == 0) for n in range(9)))) == ""


def test_tied_blocks_are_not_taken_for_alike():
    assert blocks_of(recipe(lambda: Model([Block(16)] * 9))) == ""


def test_a_block_that_does_more_for_being_the_eighth():
    class Late(Block):
        def forward(self, x):
            return super().forward(x).tanh() if self.position == 7 else super().forward(x)

    assert "the forward of all blocks differs" in blocks_of(recipe(lambda: Model(Late(16, n) for n in range(9))))


def test_a_block_with_a_hyperparameter_of_its_own():
    def build():
        blocks = [Block(16) for _ in range(9)]
        blocks[4].norm.eps = 1e-3
        return Model(blocks)

    assert blocks_of(recipe(build)) == ""


def test_a_block_that_keeps_its_result_for_being_the_eighth():
    class Keeping(Block):
        def forward(self, x):
            out = super().forward(x)
            self.kept = out.detach() if self.position == 7 else None
            return out

    found = blocks_of(recipe(lambda: Model(Keeping(16, n) for n in range(9))))
    assert "the forward of all blocks differs" in found


def test_a_model_that_does_more_with_every_third_block():
    class Third(Model):
        def call(self, position, block, x):
            return block(x).tanh() if position % 3 == 0 else block(x)

    assert "9 blocks of blocks all run: entry" in blocks_of(recipe(lambda: Third(Block(16) for _ in range(9))))


def test_a_model_that_counts_its_blocks():
    class Counting(Model):
        def forward(self, tokens):
            assert len(self.blocks) == 9
            return super().forward(tokens)

    assert "with a few blocks: AssertionError" in blocks_of(recipe(lambda: Counting(Block(16) for _ in range(9))))


def test_an_optimizer_that_treats_blocks_differently():
    def optimizer(parameters):
        first, rest = list(parameters)[:30], list(parameters)[30:]  # with 5 blocks there are 28
        return torch.optim.SGD([{"params": first}, {"params": rest, "momentum": 0.9}], lr=0.1)

    assert "the treatment of a part differs" in blocks_of(recipe(optimizer=optimizer))


def test_an_optimizer_that_makes_its_state_at_once():
    assert "the optimizer creates its state when it is created" in blocks_of(recipe(optimizer=torch.optim.Adagrad))


def test_a_model_that_copies_what_it_loads():
    class Copying(Block):
        def _load_from_state_dict(self, state, prefix, *rest):
            state[f"{prefix}norm.weight"] = state[f"{prefix}norm.weight"].clone()
            super()._load_from_state_dict(state, prefix, *rest)

    assert "loading a saved state allocates" in blocks_of(recipe(lambda: Model(Copying(16) for _ in range(9))))


def test_parameters_that_share_memory():
    class Sharing(Block):
        def __init__(self, width):
            super().__init__(width)
            self.other = nn.Parameter(self.out.weight.data)

    found = blocks_of(recipe(lambda: Model(Sharing(16) for _ in range(9))))
    assert "tensors of the model share memory" in found


def test_parameters_with_hooks():
    def build():
        model = Model(Block(16) for _ in range(9))
        model.head.weight.register_hook(lambda gradient: gradient.tanh())
        return model

    assert "parameters have hooks" in blocks_of(recipe(build))


def test_a_failed_proof_is_said_and_costs_nothing_but_time(monkeypatch):
    def refuse(*_):
        raise Irregular("no reason")

    monkeypatch.setattr("surefoot.planning.unrolled_trace.unrolled", refuse)
    assert blocks_of(recipe()) == "9 blocks of blocks all run: no reason"


def test_short_models_are_run_in_full(monkeypatch):
    monkeypatch.setattr(way, "FEWEST", 10)
    assert blocks_of(recipe()) == ""


# ------------------------------------------------------------------------------------------- the wide comparison


def bench_cases() -> list[str]:
    sys.path.insert(0, str(BENCH))
    try:
        from memory_cases import case_names

        return case_names()
    finally:
        sys.path.remove(str(BENCH))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", bench_cases())
def test_every_model_of_the_bench_made_deep(case):
    from memory_cases import case_recipe, deepened

    blocks_of(deepened(case_recipe(case), times=8))
