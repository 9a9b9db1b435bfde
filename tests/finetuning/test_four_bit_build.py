"""A model for qlora: its layers are packed while it is built, and a file fills packed layers."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import surefoot
from surefoot import load_recipe
from surefoot.training.init_from import with_first_weights
from tests import tuned_models

pytest.importorskip("peft", reason="pip install peft")
pytest.importorskip("bitsandbytes", reason="pip install bitsandbytes")
from surefoot.finetuning.four_bit import FourBitLinear, built_in_four_bits


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tuned_models.llama(tmp_path_factory.mktemp("models") / "llama")


def tuned(folder: Path, *words: str) -> surefoot.Recipe:
    return load_recipe("finetune", [f"model={folder}", "method=qlora", "context=16", "rank=2", "max_steps=2", *words])


def four_bits(model: nn.Module) -> dict[str, FourBitLinear]:
    return {name: each for name, each in model.named_modules() if isinstance(each, FourBitLinear)}


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_file_fills_packed_layers_as_if_its_weights_had_been_packed(folder, precision):
    model = with_first_weights(tuned(folder, f"precision={precision}")).model()
    there = load_file(folder / "model.safetensors")
    layers = four_bits(model)
    assert layers
    assert "lm_head" not in layers
    for name, layer in layers.items():
        plain = nn.Linear(layer.in_features, layer.out_features, bias=False)
        plain.weight = nn.Parameter(there[f"{name}.weight"])
        packed = FourBitLinear(plain, layer.compute_dtype)
        x = torch.randn(3, layer.in_features)
        assert torch.equal(layer.weight, packed.weight)
        assert torch.equal(layer(x), packed(x))
    held = torch.bfloat16 if precision == "bf16-mixed" else torch.float32
    assert {each.dtype for name, each in model.named_parameters() if name.removesuffix(".weight") not in layers} == {
        held
    }
    assert torch.equal(model.lm_head.weight, there["lm_head.weight"].to(held))


def test_mixed_precision_holds_what_is_trained_in_float32_and_the_rest_in_bfloat16(folder):
    recipe = tuned(folder, "precision=bf16-mixed", "modules_to_save=lm_head")
    model = recipe.adapt(with_first_weights(recipe).model())
    of_floats = {(each.requires_grad, each.dtype) for each in model.parameters() if each.is_floating_point()}
    assert of_floats == {(True, torch.float32), (False, torch.bfloat16)}
    assert any("modules_to_save" in name for name, each in model.named_parameters() if each.requires_grad)


def test_a_packed_layer_takes_the_rows_that_a_file_has():
    layer = FourBitLinear(nn.Linear(64, 128, bias=False), torch.float32)
    before, fewer = layer.whole(torch.float32).weight.clone(), torch.randn(64, 64)
    layer.copy_(fewer)
    after = layer.whole(torch.float32).weight
    assert (after[:64] - fewer).abs().max() < (before[:64] - fewer).abs().max()
    assert torch.allclose(after[64:], before[64:], atol=0.02)


class Tied(nn.Module):
    """One linear layer under two names, and a child in a container."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Linear(64, 64)
        self.first = self.second = layer
        self.others = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))


def test_layers_are_told_apart_by_name_also_where_one_has_two():
    model = built_in_four_bits(Tied, lambda _: ["first", "others.2"], torch.float32)
    assert model.first is model.second
    assert set(four_bits(model)) == {"first", "others.2"}
    assert type(model.others[0]) is nn.Linear
    assert not nn.modules.module._global_module_registration_hooks


def live_peak(build: Callable[[], object], file: Path) -> int:
    """The most bytes that the calls of torch's CPU allocator leave live, by torch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = build()
    profiler.export_chrome_trace(str(file))
    del kept
    events = [each for each in json.loads(file.read_text())["traceEvents"] if each.get("name") == "[memory]"]
    live = peak = 0
    for each in sorted(events, key=lambda event: event["ts"]):
        live += each["args"]["Bytes"]
        peak = max(peak, live)
    return peak


def test_a_build_holds_one_whole_layer_at_a_time_as_planned(tmp_path):
    import transformers

    size = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=128, max_position_embeddings=64, **size)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(tmp_path / "llama")
    recipe = tuned(tmp_path / "llama", "precision=bf16-mixed", "init_from=none")
    planned = surefoot.plan(recipe).init.peak.peak_bytes
    recipe.model()  # libraries make tables for the process at their first call
    measured = live_peak(partial(recipe.model), tmp_path / "trace.json")
    whole = 6 * (4 * 256 * 256 + 3 * 256 * 1024) * 4
    assert measured < whole / 2, "the model was whole before it was packed"
    assert planned == pytest.approx(measured, rel=0.05)
