"""Loss chunks, loss parallel, fused optimizers and reduced gradients: the same update, planned and trained."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from surefoot import load_recipe
from surefoot.data.batches import batches_of
from surefoot.errors import RecipeError
from surefoot.recipe.recipe import Recipe
from surefoot.step import Step
from surefoot.techniques.loss_chunks import Logits, head_of
from surefoot.world.world import RealWorld
from tests.ranks import Case, on_ranks

pytestmark = pytest.mark.sweep

WORDS = ["layers=2", "width=32", "heads=2", "context=32", "micro_batch_size=4"]


def gpt(*words: str) -> Recipe:
    return load_recipe("gpt", [*WORDS, *words])


def taken(recipe: Recipe) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss and the gradients of one micro-batch."""
    with RealWorld() as world:
        step = Step(recipe, world)
        loss, count = step.loss_of(0, world.take(batches_of(recipe)))
        (loss / count).backward()
        return loss / count, {name: each.grad for name, each in step.model.named_parameters()}


def same(one, other, tolerance: float) -> None:
    assert other[0].item() == pytest.approx(one[0].item(), rel=tolerance)
    for name, grad in one[1].items():
        torch.testing.assert_close(other[1][name], grad, rtol=tolerance, atol=tolerance * grad.abs().max().item())


@pytest.mark.parametrize("chunks", [2, 3, 128, 1000])
def test_the_loss_and_its_gradients_are_those_of_all_logits(chunks):
    same(taken(gpt()), taken(gpt(f"loss_chunks={chunks}")), 1e-5)


def test_in_bfloat16_the_logits_are_rounded_alike():
    same(taken(gpt("precision=bf16-mixed")), taken(gpt("precision=bf16-mixed", "loss_chunks=4")), 2e-2)


@pytest.mark.parametrize(
    "how", [{}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 3, "label_smoothing": 0.1}]
)
def test_cross_entropy_is_torchs(how):
    torch.manual_seed(0)
    hidden, head, targets = torch.randn(10, 8, requires_grad=True), nn.Linear(8, 5), torch.arange(10) % 5
    whole = F.cross_entropy(head(hidden), targets, **how)
    (wanted,) = torch.autograd.grad(whole.sum(), hidden)
    logits = Logits(hidden, head, 5, 4, torch.float32)
    parts = F.cross_entropy(logits, targets, **how)
    (found,) = torch.autograd.grad(parts.sum(), hidden)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(found, wanted)


def test_logits_are_sliced_by_position_and_told_like_a_tensor():
    logits = Logits(torch.zeros(2, 6, 8), nn.Linear(8, 5), 5, 4, torch.bfloat16)
    assert (logits.shape, logits.size(-1), logits.dim(), logits.dtype) == ((2, 6, 5), 5, 3, torch.bfloat16)
    assert logits[:, :-1].shape == logits[..., :-1, :].shape == (2, 5, 5)
    assert logits.flatten(0, 1).shape == logits.view(-1, 5).shape == logits.reshape(12, 5).shape == (12, 5)
    assert logits.float().dtype == torch.float32


@pytest.mark.parametrize(
    "use", [lambda x: x[..., :2], lambda x: x.argmax(-1), lambda x: x.transpose(1, 2), torch.softmax, lambda x: x * 2]
)
def test_what_needs_all_logits_is_refused_in_one_line(use):
    logits = Logits(torch.zeros(2, 6, 8), nn.Linear(8, 5), 5, 4, torch.float32)
    with pytest.raises((RecipeError, TypeError)) as refused:
        use(logits, -1) if use is torch.softmax else use(logits)
    assert refused.type is TypeError or "remove loss_chunks" in str(refused.value)


def test_a_plan_never_holds_all_logits():
    long = ["layers=2", "width=32", "heads=2", "context=512", "micro_batch_size=8"]
    whole, parts = (surefoot.plan(load_recipe("gpt", [*long, *words])) for words in ([], ["loss_chunks=8"]))
    logits = 8 * 512 * 256 * 4
    assert parts.steady.peak.peak_bytes < whole.steady.peak.peak_bytes - logits
    assert max(each.size_bytes for each in parts.steady.largest) < logits
    again = 2 * 8 * 512 * 256 * 32  # the head's product, once more
    assert parts.steady.tally.total("flops/recompute") - whole.steady.tally.total("flops/recompute") == again
    assert any("loss_chunks=8: the logits of head" in line for line in parts.choices)


def test_the_head_is_the_widest_linear_layer_outside_the_blocks():
    assert head_of(gpt().model())[0] == "head"
    with pytest.raises(RecipeError, match="needs a head"):
        head_of(nn.Sequential(nn.Conv2d(1, 1, 1)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["loss_chunks=0"], "loss_chunks=0 must be at least 1"),
        (["loss_parallel=true"], "loss_parallel splits logits over the ranks of tp"),
        (["reduce_in=int8"], "reduce_in"),
    ],
)
def test_what_cannot_be_is_refused(words, said):
    with pytest.raises(RecipeError, match=said):
        gpt(*words)


def test_fused_kernels_make_the_same_update():
    def after(*words: str) -> list[torch.Tensor]:
        recipe = gpt(*words)
        with RealWorld() as world:
            step = Step(recipe, world)
            batches = batches_of(recipe)
            for _ in range(2):
                step([world.take(batches)])
            assert step.optimizer.param_groups[0]["fused"] is (True if words else None)
            return [each.detach() for each in step.model.parameters()]

    for plain, fused in zip(after(), after("fused=true"), strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)


def test_an_optimizer_without_fused_kernels_is_named():
    recipe = gpt("fused=true")
    plain = Recipe(**{**vars(recipe), "optimizer": lambda parameters: torch.optim.Rprop(parameters)})
    with pytest.raises(RecipeError, match="fused=True: Rprop has no fused kernels"), RealWorld() as world:
        Step(plain, world)


RANKS = {
    "one": (1, []),
    "fsdp": (2, ["loss_chunks=4"]),
    "ddp": (2, ["dp_replicate=2", "loss_chunks=4"]),
    "tp": (2, ["tp=2", "loss_parallel=true"]),
}


@pytest.fixture(scope="module")
def on_many(tmp_path_factory):
    cases = [Case("tests.techniques.ranks", "losses", ranks, (words, 6)) for ranks, words in RANKS.values()]
    return dict(zip(RANKS, on_ranks(cases, tmp_path_factory.mktemp("chunks")), strict=True))


@pytest.mark.parametrize("layout", ["fsdp", "ddp", "tp"])
def test_on_many_ranks_the_losses_are_those_of_one(on_many, layout):
    one = on_many["one"][0]
    for rank in on_many[layout]:
        assert rank["losses"] == pytest.approx(one["losses"], rel=1e-5)
        assert rank["norms"] == pytest.approx(one["norms"], rel=1e-4)


def test_with_loss_parallel_no_rank_holds_all_logits():
    words = ["size=tiny", "layers=2", "context=256", "micro_batch_size=8", "tp=2"]
    gathered, split = (
        surefoot.plan(load_recipe("llama", [*words, *more]), on="2xcpu").steady.phase_peaks["loss"].peak_bytes
        for more in ([], ["loss_parallel=true"])
    )
    logits = 8 * 256 * 256 * 4
    assert gathered - split > 0.45 * logits  # two tensors of all logits become three of half of them


def test_gradients_reduced_in_bfloat16_take_half_the_traffic():
    words = [*WORDS, "precision=bf16-mixed"]
    whole, half = (
        surefoot.plan(load_recipe("gpt", [*words, *more]), on="2xcpu").steady.tally.total("traffic/reduce-scatter")
        for more in ([], ["reduce_in=bfloat16"])
    )
    assert half == pytest.approx(whole / 2)
