"""Context parallel: how tokens are cut, what is refused, and what ranks compute together."""

import re
from dataclasses import replace
from itertools import chain

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

import surefoot
from surefoot import load_recipe, read_run
from surefoot.costs.collectives import _group
from surefoot.errors import RecipeError
from surefoot.hardware import cluster
from surefoot.recipe.context_part import ContextPart
from surefoot.step import Step
from surefoot.techniques.context_parallel import Context, Ranks, _mask
from surefoot.world.world import FakeWorld
from tests.ranks import Case, on_ranks
from tests.resumed import state

SMALL = ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=2"]


def gpt(*words):
    return load_recipe("gpt", [*SMALL, *words])


@pytest.mark.parametrize("by", ["keys", "heads"])
def test_parts_hold_each_token_once_at_its_position(by):
    tokens = torch.arange(48).view(2, 24)
    parts = [ContextPart(rank, 3, by) for rank in range(3)]
    positions = [part.positions(tokens) for part in parts]
    assert sorted(torch.cat(positions).tolist()) == list(range(24))
    for part, at in zip(parts, positions, strict=True):
        assert torch.equal(part.cut(tokens), tokens[:, at])


def test_parts_by_keys_are_equal_work_under_a_causal_mask():
    keys = [sum(ContextPart(rank, 4).positions(torch.empty(1, 64)).tolist()) for rank in range(4)]
    assert len(set(keys)) == 1


def test_tokens_that_do_not_divide_are_refused():
    with pytest.raises(RecipeError, match="cuts samples into 4 equal pieces, and 30 tokens are not a multiple of 4"):
        ContextPart(0, 2).cut(torch.empty(1, 30))


def test_the_mask_of_a_piece_is_that_of_cuda():
    """On a CPU torch makes a mask of `causal_lower_right`; CUDA's kernels take it as it is."""
    q, k, v = (torch.randn(2, 2, length, 8) for length in (4, 12, 12))
    ranks = Ranks(group=None, part=ContextPart(0, 2), kernels="cpu")
    ours = F.scaled_dot_product_attention(q, k, v, attn_mask=_mask(ranks, 4, q)[:, -12:])
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(4, 12)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["precision=fp8", "cp=2"], "precision='fp8' does not work with cp"),
        (["cp_by=heads"], "cp_by='heads' needs cp above 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(words, said):
    with pytest.raises(RecipeError, match=re.escape(said)):
        gpt(*words)


def test_a_recipe_without_a_plan_is_refused():
    with pytest.raises(RecipeError, match="cp=2 needs a context_plan, and regression has none"):
        load_recipe("regression", ["cp=2"])


def mean_loss(model, batch):
    tokens, targets, positions = batch
    return F.cross_entropy(model(tokens, positions).flatten(0, 1), targets.flatten())


class Unmixed(torch.nn.Module):
    """Predicts each token from itself alone."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(256, 256)

    def forward(self, tokens, positions):
        return self.words(tokens)


def windowed(model, batch):
    tokens, targets, positions = batch
    documents = torch.zeros_like(tokens)
    return F.cross_entropy(model(tokens, positions, documents).flatten(0, 1), targets.flatten(), reduction="sum"), 1


REFUSED = {
    "a mean": (lambda: replace(gpt("cp=2"), loss=mean_loss), "cp needs a loss that returns a sum and its count"),
    "no attention": (lambda: replace(gpt("cp=2"), model=Unmixed), "did not call it: no token would see"),
    "a mask": (lambda: replace(gpt("cp=2"), loss=windowed), "the model gave attention a mask"),
    "heads": (
        lambda: gpt("cp=4", "cp_by=heads"),
        "gives each rank equally many heads, and attention has 2; use cp_by=keys",
    ),
    "tokens": (lambda: gpt("cp=3"), "32 tokens are not a multiple of 6"),
    "a budget": (lambda: gpt("cp=2", "recompute=budget=0.5"), "does not work with cp=2; use full or selective"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exact_is_refused(case):
    make, said = REFUSED[case]
    recipe = make()
    with pytest.raises(RecipeError, match=re.escape(said)):
        surefoot.plan(recipe, on=f"{recipe.cp}xcpu", resume=False)


def test_packed_documents_are_refused():
    batch = tuple(torch.zeros(2, 32, dtype=torch.long) for _ in range(4))
    plan = gpt("cp=2").context_plan
    with pytest.raises(RecipeError, match="cp does not know packed documents"):
        plan(batch, ContextPart(0, 2))


def test_a_plan_says_what_is_cut():
    with FakeWorld(ranks=4) as world:
        step = Step(gpt("cp=2"), world)
    assert str(step.layout) == "dp_shard=2 cp=2"
    assert "fsdp shards the model over 4 ranks" in step.choices()[0]
    assert step.choices()[1].startswith("cp=2: each rank has 1/2 of the tokens of a sample; ranks gather keys")


def test_attention_is_always_replaced_by_the_same_function():
    """Else torch would compile blocks anew in each micro-batch."""
    context = Context(Ranks(group=None, part=ContextPart(0, 2), kernels="cpu"), gpt("cp=2"))
    plain = F.scaled_dot_product_attention
    assert context._attention(plain) is context._attention(plain) is not plain
    with context.attending():
        assert F.scaled_dot_product_attention is not plain
    assert F.scaled_dot_product_attention is plain


def test_shards_are_gathered_over_cp_too():
    """Innermost first. The ranks of a tp group are neighbours, then come those of cp."""
    sizes = {"tp": 2, "cp": 4, "dp_shard": 8, "dp_replicate": 2}
    groups = {name: _group(cluster("128xh100-sxm"), sizes, name) for name in (*sizes, "all")}
    assert {name: each.ranks for name, each in groups.items()} == {
        "tp": 2, "cp": 4, "dp_shard": 32, "dp_replicate": 2, "all": 128
    }  # fmt: skip
    assert {name: each.per_node for name, each in groups.items()} == {
        "tp": 8, "cp": 4, "dp_shard": 4, "dp_replicate": 1, "all": 8
    }  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("by", ["keys", "heads"])
def test_conventions_count_whole_attention(by):
    one = surefoot.plan(gpt(), on="1xcpu", resume=False).flops_per_token
    many = surefoot.plan(gpt("cp=2", f"cp_by={by}"), on="2xcpu", resume=False).flops_per_token
    del one["counted"], many["counted"]  # by keys, a rank leaves out keys behind its queries
    assert one == many


# ------------------------------------------------------------------------------------------- on real ranks

LAYOUTS = {
    "cp-2": (2, ["cp=2"]),
    "cp-2-heads": (2, ["cp=2", "cp_by=heads"]),
    "cp-2-recomputed": (2, ["cp=2", "recompute=full"]),
}
MORE = {
    "cp-4": (4, ["cp=4"]),
    "fsdp-2-cp-2-heads": (4, ["cp=2", "cp_by=heads"]),
    "fsdp-2-cp-2": (4, ["cp=2"]),
    "hsdp-2-cp-2": (4, ["cp=2", "dp_replicate=2"]),
    "cp-2-tp-2": (4, ["cp=2", "tp=2"]),
}


def held_against_one(layouts, folder):
    """Losses of 20 steps within 1e-5, final weights within 1e-5, gradients of one step within 1e-6 of float64."""
    cases = [Case("tests.techniques.ranks", "losses", 1, ([],))]
    cases += [Case("tests.techniques.ranks", "gradients", 1, ([], True))]
    for function in ("losses", "gradients"):
        cases += [Case("tests.techniques.ranks", function, ranks, (words,)) for ranks, words in layouts.values()]
    (one,), (exact,), *taken = on_ranks(cases, folder)
    for number, name in enumerate(layouts):
        for found in taken[number]:
            assert found["losses"] == pytest.approx(one["losses"], rel=1e-5), name
            assert found["counts"] == one["counts"], name
            for weight, value in found["weights"].items():
                torch.testing.assert_close(value, one["weights"][weight], rtol=0, atol=1e-5)
        for gradients in taken[len(layouts) + number]:
            for weight, value in gradients.items():
                torch.testing.assert_close(value.double(), exact[weight], rtol=0, atol=1e-6)


@pytest.mark.sweep
def test_ranks_compute_what_one_computes(tmp_path):
    held_against_one(LAYOUTS, tmp_path)


@pytest.mark.sweep
@pytest.mark.long
def test_ranks_compute_what_one_computes_in_more_layouts(tmp_path):
    held_against_one(MORE, tmp_path)


@pytest.mark.sweep
def test_an_evaluation_counts_the_tokens_of_all_ranks(tmp_path):
    layouts = {"one": (1, []), "keys": (2, ["cp=2"]), "heads": (2, ["cp=2", "cp_by=heads"])}
    cases = [Case("tests.techniques.ranks", "evaluated", ranks, (words,)) for ranks, words in layouts.values()]
    (one,), *many = on_ranks(cases, tmp_path)
    assert list(chain.from_iterable(many)) == pytest.approx([one] * 4, rel=1e-6)


@pytest.mark.sweep
def test_attention_of_all_kinds_is_that_of_whole_sequences(tmp_path):
    """Causal and not, with as many and with fewer heads of keys, in float64."""
    kinds = [(by, causal, heads) for by in ("keys", "heads") for causal in (True, False) for heads in (4, 2, 1)]
    cases = [Case("tests.techniques.ranks", "attended", ranks, (kinds,)) for ranks in (2, 4)]
    for found in chain.from_iterable(on_ranks(cases, tmp_path)):
        assert len(found) == len(kinds)
        assert max(found.values()) < 1e-12, found


@pytest.mark.sweep
def test_a_run_goes_on_with_its_tokens_cut_otherwise(tmp_path):
    """In the same layout to the bit; from two ranks to one and back, as close as the ranks are to one."""
    cut = (2, ["cp=2"])
    pieces = {
        "one": [((1, []), None)],
        "whole": [(cut, None)],
        "stopped": [(cut, 4), (cut, None)],
        "other": [(cut, 3), ((1, []), 7), (cut, None)],
    }
    cases = [
        Case("tests.ways.ranks", "trained", ranks, (str(tmp_path / name), words, None if stop is None else (0, stop)))
        for name, parts in pieces.items()
        for (ranks, words), stop in parts
    ]
    statuses = [set(each) for each in on_ranks(cases, tmp_path)]
    assert statuses == [{"finished" if case.arguments[2] is None else "interrupted"} for case in cases]
    rows = {name: read_run(tmp_path / name).rows() for name in pieces}
    assert [row.loss for row in rows["stopped"]] == [row.loss for row in rows["whole"]]
    expected, found = state(tmp_path / "whole"), state(tmp_path / "stopped")
    for place, leaf in expected.items():
        assert torch.equal(leaf, found[place]) if isinstance(leaf, torch.Tensor) else leaf == found[place], place
    for name in ("whole", "other"):
        assert [row.samples for row in rows[name]] == [row.samples for row in rows["one"]]
        assert [row.loss for row in rows[name]] == pytest.approx([row.loss for row in rows["one"]], rel=1e-5)
