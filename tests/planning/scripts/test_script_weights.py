"""Weights that a planned script loads: shapes from files or a configuration, and no bytes."""

import resource
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file

from surefoot.planning.scripts.plan_script import plan_script
from surefoot.torch_inside.fake_mode import FakeTensor
from surefoot.world.card.card import Card

sys.path.append(str(Path(__file__).parents[3] / "bench" / "scripts"))
LARGE = (1024, 2048)
MOST_SECONDS = 90
MOST_BYTES = 4 << 30


def test_large_tensors_of_a_file_are_fake_and_small_ones_are_read(tmp_path):
    save_file(
        {"large": torch.ones(LARGE, dtype=torch.bfloat16), "small": torch.arange(3)}, tmp_path / "some.safetensors"
    )
    plain = safetensors.safe_open
    with Card(None):
        read = load_file(tmp_path / "some.safetensors")
        with safetensors.safe_open(tmp_path / "some.safetensors", framework="pt") as file:
            part = file.get_slice("large")
            assert part.get_shape() == list(LARGE)
            assert isinstance(part[:7], FakeTensor)
            assert part[:7].shape == (7, 2048)
            assert sorted(file.keys()) == ["large", "small"]
    assert isinstance(read["large"], FakeTensor)
    assert (read["large"].shape, read["large"].dtype) == (LARGE, torch.bfloat16)
    assert read["small"].tolist() == [0, 1, 2]
    assert safetensors.safe_open is safetensors.torch.safe_open is plain


LOADS = """
import torch
from transformers import LlamaForCausalLM
model = LlamaForCausalLM.from_pretrained("{folder}", dtype=torch.bfloat16).to("cuda")
optimizer = torch.optim.SGD([model.model.norm.weight], 0.1)
for step in range(9):
    tokens = torch.ones(1, 16, dtype=torch.long, device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("weights", [False, pytest.param(True, marks=pytest.mark.sweep)])
def test_shapes_come_from_a_configuration_or_from_headers(tmp_path, monkeypatch, weights):
    pytest.importorskip("transformers")
    from local_model import write_model

    write_model(tmp_path / "model", "tiny", weights=weights)
    (tmp_path / "train.py").write_text(LOADS.format(folder=tmp_path / "model"))
    plan = plan_script([str(tmp_path / "train.py")], on="t4")
    parameters = 2 * 32_000 * 1024 + 1024 + 2 * (4 * 1024**2 + 3 * 1024 * 2816 + 2 * 1024)
    assert plan.steady.tally.total("memory/parameters") == 2 * parameters
    assert any("are not here at train.py:4" in note for note in plan.assumptions) == (not weights)


def test_parameters_of_a_librarys_own_class_stay_what_they_are():
    bnb = pytest.importorskip("bitsandbytes")
    card = Card(None)
    with ExitStack() as entered:
        for each in (card, *card.below, *card.above):
            entered.enter_context(each)
        layer = bnb.nn.Linear4bit(2048, 2048, bias=False, quant_type="nf4")
        before = layer.weight
        assert layer.to("cuda") is layer
        assert layer.weight is before
        assert isinstance(before, bnb.nn.Params4bit)
        assert isinstance(before, FakeTensor)
        assert before.device == torch.device("cuda", 0)
        assert before.nbytes == 2048 * 2048 // 2
        assert before.quant_state.shape == (2048, 2048)
        assert layer.to("cuda").weight is before


@pytest.mark.long
@pytest.mark.parametrize("more", [[], ["--four-bit"]])
def test_lora_of_a_7b_takes_little_of_this_machine(tmp_path, more):
    pytest.importorskip("trl")
    from local_model import write_model

    script = Path(__file__).parents[3] / "bench" / "scripts" / "sft_lora.py"
    write_model(tmp_path / "model", "7b", weights=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    plan = plan_script([str(script), "--model", str(tmp_path / "model"), *more], on="rtx-4090")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < MOST_SECONDS
    assert after.ru_maxrss * 1024 < MOST_BYTES
    assert plan.fit is not None
    assert plan.steps == 500
