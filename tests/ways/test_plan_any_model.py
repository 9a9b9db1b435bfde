"""plan: models whose operators torch cannot fake as they are. The plan equals what meters see around real steps."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import surefoot
from surefoot.errors import WorldError
from surefoot.records.log import read_rows
from surefoot.records.plan import Plan
from surefoot.ways.export import export_weights

pytestmark = pytest.mark.sweep


def assert_planned_as_measured(recipe: surefoot.Recipe) -> Plan:
    """The plan of a recipe, which must equal the usage of real steps."""
    plan, profile = surefoot.plan(recipe), surefoot.profile(recipe, timed_steps=1)
    assert plan.first == profile.first
    assert plan.steady == profile.steady
    return plan


EXPERTS = {
    "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "Qwen3Moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16},
    "DeepseekV3": {
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 32,
        "first_k_dense_replace": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8,
        "qk_nope_head_dim": 8, "num_key_value_heads": 4,
    },
    "GptOss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16},
}  # fmt: skip


def experts(family: str, precision: str = "32-true") -> surefoot.Recipe:
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"vocab_size": 128, "num_key_value_heads": 2, "use_cache": False, **EXPERTS[family]}
    config = getattr(transformers, f"{family}Config")(**shape)
    return surefoot.recipe_of(
        lambda: getattr(transformers, f"{family}ForCausalLM")(config),
        {"input_ids": torch.randint(0, 128, (2, 16)), "labels": torch.randint(0, 128, (2, 16))},
        loss=lambda model, batch: model(**batch).loss,
        precision=precision,
    )


@pytest.mark.parametrize("family", EXPERTS)
def test_mixtures_of_experts_of_transformers(family):
    assert_planned_as_measured(experts(family))


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true"])
def test_a_mixture_of_experts_in_every_precision(precision):
    assert_planned_as_measured(experts("Mixtral", precision))


def test_a_mixture_of_experts_on_a_gpu():
    plan = surefoot.plan(experts("Mixtral"), on="h100-sxm")
    assert plan.time is not None
    on_cpu = surefoot.plan(experts("Mixtral"))
    assert plan.flops_per_token["counted"] == on_cpu.flops_per_token["counted"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("left", "right"), [((12, 16), (3, 16, 24)), ((3, 8, 16), (16, 24)), ((8, 16), (16, 24)), ((3, 8, 16), (3, 16, 24))]
)
def test_grouped_products_have_the_shape_of_real_ones(left, right, dtype):
    ends = torch.tensor([4, 10, left[-2 if len(right) == 3 else -1]], dtype=torch.int32)
    offsets = None if len(left) == len(right) == 3 else ends

    def product():
        return torch._grouped_mm(torch.ones(left, dtype=dtype), torch.ones(right, dtype=dtype), offs=offsets)

    real = product()
    with surefoot.fake_world():
        fake = product()
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def test_a_grouped_product_that_the_real_kernel_refuses_is_refused():
    def product():
        return torch._grouped_mm(torch.ones(8, 3), torch.ones(2, 3, 4), offs=torch.tensor([4, 8], dtype=torch.int32))

    with pytest.raises(RuntimeError):
        product()
    with surefoot.fake_world(), pytest.raises(RuntimeError):
        product()


class Routed(nn.Module):
    """Experts that get their rows by counts, as in many mixtures of experts that people write."""

    def __init__(self, fewest: int, learned: bool):
        super().__init__()
        self.fewest, self.experts = fewest, nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.gate = nn.Parameter(torch.ones(1)) if learned else 1

    def forward(self, x):
        chosen = (x[:, 0] * self.gate).long()
        parts = x[chosen.argsort()].split(torch.bincount(chosen, minlength=self.fewest).tolist())
        return torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])


def routed(fewest: int = 4, *, learned: bool) -> surefoot.Recipe:
    rows = torch.randn(2048, 16)
    rows[:, 0] = torch.arange(2048) % 4
    return surefoot.recipe_of(lambda: Routed(fewest, learned), (rows,))


def test_counts_of_bins_are_assumed_to_be_even():
    plan = assert_planned_as_measured(routed(learned=True))
    assert plan.assumptions == ("bincount counted 2,048 elements evenly in 4 bins (2 times)",)


def test_counts_of_an_unknown_number_of_bins_are_refused():
    with pytest.raises(WorldError, match="bincount"):
        surefoot.plan(routed(fewest=0, learned=True))


def test_counts_of_the_batch_are_read():
    plan = assert_planned_as_measured(routed(fewest=0, learned=False))
    said = "read a value of the batch: a step with another one is not validated"
    assert any(said in each for each in plan.assumptions)


class Adapted(nn.Module):
    """A frozen layer with trained matrices beside it, cast after it was built, as adapters of peft are."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(43, 47).requires_grad_(False)
        self.down, self.up = nn.Linear(43, 3, bias=False), nn.Linear(3, 47, bias=False)
        self.down.to(self.base.weight.dtype)
        self.to(torch.bfloat16).float()

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def test_adapters_are_planned_and_their_weights_exported(tmp_path):
    recipe = surefoot.recipe_of(Adapted, (torch.randn(8, 43),), max_steps=1)
    assert_planned_as_measured(recipe)
    surefoot.train(recipe, path=str(tmp_path / "run"))
    written = export_weights(str(tmp_path / "run"), to=str(tmp_path / "weights"))
    assert set(load_file(written.files[0])) == {"base.weight", "base.bias", "down.weight", "up.weight"}


# ------------------------------------------------------------------------------------------- values in a step


def speech(lengths: torch.Tensor) -> surefoot.Recipe:
    def loss(model, batch):
        frames, targets, ends = batch
        scores = model(frames).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(scores, targets, torch.full((len(frames),), frames.shape[1]), ends)

    batch = torch.randn(4, 50, 8), torch.randint(1, 6, (4, 20)), lengths
    return surefoot.recipe_of(lambda: nn.Linear(8, 6), batch, loss=loss)


@pytest.mark.parametrize("lengths", [[20, 5, 9, 2], [7, 5, 9, 2]])
def test_ctc_loss(lengths):
    plan = assert_planned_as_measured(speech(torch.tensor(lengths)))
    assert plan.assumptions == plan.steps_differ  # another batch may have a longer target
    assert "reads values of the batch; one batch was planned" in plan.steps_differ[0]


def test_ctc_loss_with_lengths_that_the_step_computes():
    recipe = speech(torch.tensor([20.0, 5.0, 9.0, 2.0]))

    def loss(model, batch):
        return recipe.loss(model, [*batch[:2], batch[2].long()])

    plan = assert_planned_as_measured(dataclasses.replace(recipe, loss=loss))
    assert plan.assumptions == ("the longest target of ctc_loss has 20 elements (2 times)",)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask = nn.Linear(33, 33)

    def forward(self, sound):
        window = torch.hann_window(64, periodic=False)
        spectrum = torch.stft(sound, 64, 16, window=window, return_complex=True)
        spectrum = spectrum * self.mask(spectrum.abs().transpose(1, 2)).sigmoid().transpose(1, 2)
        return torch.istft(spectrum, 64, 16, window=window, length=sound.shape[-1])


def test_a_spectrum_and_back():
    plan = assert_planned_as_measured(surefoot.recipe_of(Denoiser, (torch.randn(4, 512),)))
    assert plan.assumptions == ()  # the window is known


def test_an_optimizer_that_compares_its_norms():
    optimization = pytest.importorskip("transformers.optimization")
    recipe = surefoot.recipe_of(
        lambda: nn.Linear(16, 16),
        (torch.randn(8, 16),),
        optimizer=lambda parameters: optimization.Adafactor(parameters, lr=1e-3, relative_step=False),
    )
    plan = assert_planned_as_measured(recipe)
    assert any("a number that is compared is 1" in note for note in plan.assumptions)


def test_an_array_of_numpy_in_a_step():
    def loss(model, batch):
        out = model(batch[0])
        weights = torch.from_numpy(abs(out.detach().numpy()) + 1)
        return (out * weights).square().mean()

    recipe = surefoot.recipe_of(lambda: nn.Linear(16, 16), (torch.randn(8, 16),), loss=loss)
    plan = assert_planned_as_measured(recipe)
    assert plan.assumptions == (".numpy() on a float32 tensor answered ones (2 times)",)


def test_distributions_that_validate_their_arguments():
    def loss(model, batch):
        mean, scale = model(batch[0]).chunk(2, -1)
        return -torch.distributions.Normal(mean, scale.exp()).log_prob(batch[0]).mean()

    assert_planned_as_measured(surefoot.recipe_of(lambda: nn.Linear(16, 32), (torch.randn(8, 16),), loss=loss))


def test_the_number_of_values_that_are_not_finite_is_0():
    def loss(model, batch):
        out = model(batch[0])
        assert out.isnan().sum() == 0
        assert int(out.isinf().count_nonzero()) == 0
        return out.square().mean()

    plan = assert_planned_as_measured(surefoot.recipe_of(lambda: nn.Linear(16, 16), (torch.randn(8, 16),), loss=loss))
    assert all(note.startswith("all numbers are finite") for note in plan.assumptions)


def test_a_layer_with_truncated_normal_weights():
    def layer():
        made = nn.Linear(16, 16)
        nn.init.trunc_normal_(made.weight, std=0.02)
        return made

    assert_planned_as_measured(surefoot.recipe_of(layer, (torch.randn(8, 16),)))


# ------------------------------------------------------------------------------------------- masks and strides


class Translator(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.embed, self.mask = nn.Embedding(20, 16), mask
        self.body = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, source, target):
        hidden = {"src_key_padding_mask": source == 0, "tgt_key_padding_mask": target == 0}
        return self.body(self.embed(source), self.embed(target), tgt_mask=self.mask(target.shape[1]), **hidden)


def translations() -> tuple[torch.Tensor, torch.Tensor]:
    source, target = torch.randint(1, 20, (4, 6)), torch.randint(1, 20, (4, 8))
    source[1:, 5:], target[2:, 6:] = 0, 0
    return source, target


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")
@pytest.mark.parametrize(
    "mask",
    [
        nn.Transformer.generate_square_subsequent_mask,
        lambda size: torch.full((size, size), float("-inf")).tril(-1),
        lambda size: torch.zeros(size, size),
    ],
    ids=["causal", "anticausal", "nothing hidden"],
)
def test_a_transformer_with_masks(mask):
    assert_planned_as_measured(surefoot.recipe_of(lambda: Translator(mask), translations()))


@pytest.mark.filterwarnings("ignore:Support for mismatched", "ignore:.*nested tensors is in prototype")
def test_a_transformer_with_padding_is_planned_in_evaluation():
    recipe = surefoot.recipe_of(lambda: Translator(nn.Transformer.generate_square_subsequent_mask), translations())
    plan = surefoot.plan(dataclasses.replace(recipe, evaluation=recipe.data))
    assert plan.evaluate.peak.peak_bytes > 0
    assert any("nested tensors" in note for note in plan.assumptions)


def test_a_mask_that_is_written_with_computed_values_is_no_longer_known():
    with surefoot.fake_world():
        mask = torch.full((4, 4), float("-inf"))
        assert not isinstance(mask, FakeTensor)
        assert bool((mask == float("-inf")).all())
        mask[0] = torch.randn(4)
        assert isinstance(mask + 1, FakeTensor)


def test_the_decoder_mask_of_bart():
    transformers = pytest.importorskip("transformers")
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    widths = {"d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 50}
    config = transformers.BartConfig(**layers, **widths, max_position_embeddings=32, use_cache=False)
    tokens = torch.randint(3, 50, (2, 12))
    recipe = surefoot.recipe_of(
        lambda: transformers.BartForConditionalGeneration(config),
        {"input_ids": tokens, "labels": tokens},
        loss=lambda model, batch: model(**batch).loss,
    )
    assert_planned_as_measured(recipe)


def test_the_shifted_windows_of_swin():
    """Its layer norms get gradients with other strides than their input."""
    transformers = pytest.importorskip("transformers")
    shape = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [2, 2], "num_heads": [1, 2], "window_size": 4}
    config = transformers.SwinConfig(**shape)
    recipe = surefoot.recipe_of(
        lambda: transformers.SwinForImageClassification(config),
        {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])},
        loss=lambda model, batch: model(**batch).loss,
    )
    assert_planned_as_measured(recipe)


# ------------------------------------------------------------------------------------------- optimizers


class Halves(nn.Module):
    """A model whose body updates itself in backward, as soon as a gradient is there."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 4)
        updates = {each: torch.optim.AdamW([each]) for each in self.body.parameters()}

        def update(parameter):
            updates[parameter].step()
            updates[parameter].zero_grad()

        for each in updates:
            each.register_post_accumulate_grad_hook(update)

    def forward(self, x):
        return self.head(self.body(x))


def test_updates_in_hooks_of_the_backward():
    def head_only(parameters):
        return torch.optim.AdamW(list(parameters)[-2:])

    plan = assert_planned_as_measured(surefoot.recipe_of(Halves, (torch.randn(8, 16),), optimizer=head_only))
    assert plan.steady.tally.total("memory/optimizer/body.0") == 2 * 4 * (16 * 32 + 32) + 8
    assert plan.steady.tally.total("samples/trained") == 8
    assert plan.steady.tally.total("flops/backward/body.2") == 2 * 2 * 8 * 16 * 32


def sparse(optimizer, bag: bool = False, **settings) -> surefoot.Recipe:
    kind = nn.EmbeddingBag if bag else nn.Embedding
    tokens = torch.randint(0, 50, (4, 8))
    return surefoot.recipe_of(lambda: kind(50, 4, sparse=True), (tokens,), optimizer=optimizer, **settings)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("bag", [False, True], ids=["embedding", "bag"])
@pytest.mark.parametrize("optimizer", [torch.optim.SparseAdam, torch.optim.Adagrad, torch.optim.SGD])
def test_sparse_gradients_are_planned_and_said_to_depend_on_the_batch(optimizer, bag):
    plan = surefoot.plan(sparse(lambda parameters: optimizer(list(parameters), lr=0.1), bag))
    assert any("of a sparse tensor were" in note and "not validated" in note for note in plan.assumptions)


def test_the_norm_of_a_sparse_gradient_is_that_of_a_dense_one(tmp_path):
    """A token that occurs twice has one row."""

    def trained(kind: bool) -> list[float]:
        recipe = surefoot.recipe_of(
            lambda: nn.Embedding(50, 4, sparse=kind),
            (torch.tensor([[1, 1, 2], [3, 1, 2]]),),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            max_steps=3,
            max_grad_norm=1e-3,
        )
        run = surefoot.train(recipe, path=str(tmp_path / str(kind)))
        return [row.grad_norm for row in read_rows(run.log)]

    assert trained(True) == pytest.approx(trained(False))


# ------------------------------------------------------------------------------------------- what stays impossible


@torch.library.custom_op("surefoot_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


IMPOSSIBLE = {
    "a value": (
        lambda out: out if torch.allclose(out, out + 1) else out * 2,
        "reads the values of a tensor (aten.allclose.default), and a plan has no values; move this code out of",
    ),
    "a shape": (lambda out: out.unique(), "the result of aten._unique2.default"),
    "bins": (lambda out: out.sum() + out[0].long().bincount().sum(), "set its minlength"),
    "a large array": (lambda out: out.sum() + out.repeat(1, 9999, 40).detach().numpy().sum(), "values with .numpy()"),
    "an own operator": (lambda out: halved(out), "torch.library.register_fake('surefoot_tests::halved')"),
    "nested tensors": (
        lambda out: torch.nested.nested_tensor([out, out]).to_padded_tensor(0.0),
        "aten._nested_tensor_from_tensor_list.default",
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("use", "said"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_planned_is_named_with_its_line_and_what_to_do(use, said):
    recipe = surefoot.recipe_of(
        lambda: nn.Linear(4, 4), torch.randn(3, 4), loss=lambda model, batch: use(model(batch)).mean()
    )
    with pytest.raises(WorldError) as caught:
        surefoot.plan(recipe)
    assert said in str(caught.value)
    assert f" at test_plan_any_model.py:{use.__code__.co_firstlineno}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_code_that_fails_on_an_integer_that_was_guessed_is_named():
    def loss(model, batch):
        out = model(batch)
        counts = (out > 0).sum(0).tolist()
        return sum(part.mean() for part in out.flatten().split([*counts, out.numel() - sum(counts)]) if len(part)) * 0

    def sized(model, batch):
        out = model(batch)
        return out.split((out > 0).sum(0).tolist())[0].mean()

    batch = torch.randn(3, 4)
    surefoot.plan(surefoot.recipe_of(lambda: nn.Linear(4, 4), batch, loss=loss))
    with pytest.raises(WorldError, match=r"test_plan_any_model.py:\d+ reads how many .* split_with_sizes") as caught:
        surefoot.plan(surefoot.recipe_of(lambda: nn.Linear(4, 4), batch, loss=sized))
    assert "\n" not in str(caught.value)


def test_a_line_in_an_installed_package_is_named_with_the_line_that_called_it(tmp_path, monkeypatch):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "some_losses.py").write_text("def distinct(x):\n    return x.unique().mean()\n")
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    import some_losses

    def loss(model, batch):
        return some_losses.distinct(model(batch))

    with pytest.raises(WorldError, match=r"at some_losses.py:2, called at test_plan_any_model.py:\d+ "):
        surefoot.plan(surefoot.recipe_of(lambda: nn.Linear(4, 4), torch.randn(3, 4), loss=loss))


def test_a_masked_selection_is_the_share_that_the_recipe_gives():
    def loss(model, batch):
        return model(batch).masked_select(batch > 0).square().mean()

    batch = torch.ones(8, 4)
    batch[:4] = -1
    recipe = surefoot.recipe_of(lambda: nn.Linear(4, 4), batch, loss=loss, density=0.5)
    plan = assert_planned_as_measured(recipe)
    assert plan.assumptions == (
        "masked_select chose 50.0% of 32 elements, which is not validated: the recipe's density (2 times)",
    )
