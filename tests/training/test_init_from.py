"""init_from: weights from a file, with each difference named; a resume does not read the file again."""

import json
import pickle
import struct
import time
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import surefoot
from surefoot import Recipe, read_run
from surefoot.cli.main import app
from surefoot.errors import RecipeError, RunError
from surefoot.training.init_from import _prefixed, fill
from tests.resumed import train_to


class Tagger(nn.Module):
    """An embedding, a body and a head."""

    def __init__(self, words: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.token, self.body, self.head = nn.Embedding(words, 4), nn.Linear(4, 4), nn.Linear(4, classes)

    def forward(self, words):
        return self.head(self.body(self.token(words)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.out = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        self.out.weight = self.token.weight


def tagging(path: str | Path | None = None, *, accept: str = "", classes: int = 3, **fields) -> Recipe:
    return Recipe(
        model=lambda: Tagger(classes=classes),
        data=lambda: TensorDataset(torch.randint(8, (64,)), torch.randint(3, (64,))),
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        micro_batch_size=8,
        **{
            "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
            "max_steps": 6,
            "save_every": "2 steps",
            "init_from": None if path is None else str(path),
            "init_accept": accept,
            **fields,
        },
    )


@pytest.fixture
def weights(tmp_path) -> Path:
    """A file with the weights of a model that the seed does not make."""
    torch.manual_seed(99)
    save_file(Tagger().state_dict(), tmp_path / "old.safetensors")
    return tmp_path / "old.safetensors"


def filled(model: nn.Module, path: Path, accept: str = "") -> tuple[dict[str, torch.Tensor], str]:
    told = fill(model, str(path), accept=accept)
    return model.state_dict(), str(told)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ------------------------------------------------------------------------------------------- what is taken


def test_the_model_begins_with_the_weights_of_the_file(weights, tmp_path):
    run = surefoot.train(tagging(weights, max_steps=1, optimizer=still), path=str(tmp_path / "run"))
    assert same(load_file(run.weights), load_file(weights))
    (told,) = [event for event in run.happened() if event.kind == "initialised"]
    assert told.text.startswith("5 of the model's 5 tensors taken from ")


def still(parameters):
    return torch.optim.SGD(parameters, lr=0.0)


def test_a_run_and_its_export_are_sources(weights, tmp_path):
    first = surefoot.train(tagging(weights), path=str(tmp_path / "run"))
    second, _ = filled(Tagger(), Path(first.path))
    assert same(second, load_file(first.weights))
    surefoot.export(first.path, tagging(weights), to=str(tmp_path / "export"))
    assert same(filled(Tagger(), tmp_path / "export")[0], second)


def test_a_set_of_files_is_one_source(weights, tmp_path):
    whole, folder = load_file(weights), tmp_path / "set"
    folder.mkdir()
    parts = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(whole)}
    for file in set(parts.values()):
        save_file({name: whole[name] for name in whole if parts[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    assert same(filled(Tagger(), folder)[0], whole)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "encoder."])
def test_one_prefix_more_in_the_file_is_taken_off_and_said(weights, tmp_path, prefix):
    whole = load_file(weights)
    save_file({prefix + name: each for name, each in whole.items()}, tmp_path / "prefixed.safetensors")
    state, told = filled(Tagger(), tmp_path / "prefixed.safetensors")
    assert same(state, whole)
    assert f"without their prefix {prefix!r}" in told


def test_a_header_of_300000_prefixes_is_refused_within_a_minute(tmp_path):
    """One pass over the names; a pass for each prefix took 88 s for 8,000 names."""
    count = 300_000
    header = {f"layer{at}.weight": {"dtype": "U8", "shape": [1], "data_offsets": [at, at + 1]} for at in range(count)}
    text = json.dumps(header).encode()
    file = tmp_path / "many.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(count))
    began = time.thread_time()
    with pytest.raises(RecipeError, match=r"only in the file, not used, 300,000: layer0\.weight") as refused:
        fill(Tagger(), str(file))
    assert time.thread_time() - began < 60
    assert len(str(refused.value)) < 2000


NAMES = st.sampled_from(["a", "a.b", "b", "b.a", "a.a", "a.a.b", "c.a", "c.b.a", "b.", ""])


@given(there=st.sets(NAMES), here=st.sets(NAMES))
def test_the_prefix_that_matches_the_most_names_is_found(there, here):
    """Held against every prefix tried one by one."""
    ways = [{name: name for name in there}]
    for prefix in sorted({f"{name.partition('.')[0]}." for name in there if "." in name}):
        ways.append({name.removeprefix(prefix): name for name in there})
    for prefix in sorted({f"{name.partition('.')[0]}." for name in here if "." in name}):
        ways.append({prefix + name if name not in here else name: name for name in there})
    best = max((way for way in ways if len(way) == len(there)), key=lambda way: sum(name in here for name in way))
    assert _prefixed(dict.fromkeys(there, ()), dict.fromkeys(here))[0] == best


def test_a_body_is_put_under_a_new_head_and_the_prefix_said(weights):
    model = nn.Module()
    model.base, model.score = Tagger(), nn.Linear(3, 1)
    state, told = filled(model, weights, accept="score.*")
    assert all(torch.equal(state[f"base.{name}"], each) for name, each in load_file(weights).items())
    assert "with the prefix 'base.' of the model" in told
    assert "only in the model, which keeps its first values, 2: score.weight, score.bias" in told


def test_other_formats_are_converted_and_counted(weights, tmp_path):
    halves = {name: each.bfloat16() for name, each in load_file(weights).items()}
    save_file(halves, tmp_path / "half.safetensors")
    state, told = filled(Tagger(), tmp_path / "half.safetensors")
    assert all(torch.equal(state[name], each.float()) for name, each in halves.items())
    assert "converted from bfloat16 to float32: 5 tensors" in told


def test_tied_tensors_need_one_name_and_may_not_differ(tmp_path):
    shared = torch.randn(8, 4)
    save_file({"token.weight": shared}, tmp_path / "one.safetensors")
    assert torch.equal(filled(Tied(), tmp_path / "one.safetensors")[0]["out.weight"], shared)
    save_file({"token.weight": shared, "out.weight": shared + 1}, tmp_path / "two.safetensors")
    with pytest.raises(RecipeError, match=r"one tensor in the model, different ones in the file, 2: token.weight"):
        fill(Tied(), str(tmp_path / "two.safetensors"))


# ------------------------------------------------------------------------------------------- what is refused


def test_nothing_is_dropped_without_a_word(weights):
    whole = load_file(weights)
    save_file({**{name: whole[name] for name in whole if name != "body.bias"}, "old.weight": torch.ones(2)}, weights)
    model = Tagger()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    with pytest.raises(RecipeError) as refused:
        fill(model, str(weights))
    assert "4 of the model's 5 tensors taken" in str(refused.value)
    assert "only in the model, which keeps its first values, 1: body.bias" in str(refused.value)
    assert "only in the file, not used, 1: old.weight" in str(refused.value)
    assert "init_accept='body.bias,old.weight'" in str(refused.value)
    assert same(model.state_dict(), before), "a refused file changed the model"
    with pytest.raises(RecipeError, match=r"init_accept='old.weight'"):
        fill(model, str(weights), accept="body.*")
    fill(model, str(weights), accept="body.*, old.weight")


def test_more_channels_of_a_convolution_are_no_other_vocabulary(tmp_path):
    save_file(torch.nn.Conv2d(3, 4, 3).state_dict(), tmp_path / "conv.safetensors")
    with pytest.raises(RecipeError, match=r"4 rows more; if accepted") as refused:
        fill(torch.nn.Conv2d(3, 8, 3), str(tmp_path / "conv.safetensors"))
    assert "vocabulary" not in str(refused.value)


@pytest.mark.parametrize(("words", "text"), [(10, "2 rows more"), (5, "3 rows fewer")])
def test_a_resized_vocabulary_is_explained(weights, words, text):
    model, whole = Tagger(words=words), load_file(weights)
    first = model.token.weight.detach().clone()
    with pytest.raises(RecipeError, match=f"{text}, as with another vocabulary"):
        fill(model, str(weights))
    fill(model, str(weights), accept="token.weight")
    common = min(words, 8)
    assert torch.equal(model.token.weight[:common], whole["token.weight"][:common])
    assert torch.equal(model.token.weight[common:], first[common:])


def test_a_file_of_another_model_is_refused_even_if_accepted(tmp_path):
    save_file({"other": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(RecipeError, match=r"no tensor of .* has the name of one in the model"):
        fill(Tagger(), str(tmp_path / "other.safetensors"), accept="*")


class Harmful:
    def __reduce__(self):
        return Path.touch, (Path("executed"),)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "weights.pt"])
def test_a_pickle_is_never_executed(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / name).write_bytes(pickle.dumps(OrderedDict(weight=Harmful())))
    for path in (tmp_path / "folder", tmp_path / "folder" / name):
        with pytest.raises(RecipeError, match=r"not a whole safetensors file|may be a pickle"):
            fill(Tagger(), str(path))
    assert not (tmp_path / "executed").exists()


def test_a_cut_file_an_absent_one_and_a_strange_index_are_refused(weights, tmp_path):
    (tmp_path / "cut.safetensors").write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(RecipeError, match="not a whole safetensors file"):
        fill(Tagger(), str(tmp_path / "cut.safetensors"))
    with pytest.raises(RecipeError, match="there is no file or folder"):
        fill(Tagger(), str(tmp_path / "absent"))
    (tmp_path / "set").mkdir()
    index = tmp_path / "set" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../old.safetensors"}}))
    with pytest.raises(RecipeError, match="which is not a file beside it"):
        fill(Tagger(), str(tmp_path / "set"))
    index.write_text(json.dumps({"weight_map": {"a": "absent.safetensors"}}))
    with pytest.raises(RecipeError, match="does not hold it"):
        fill(Tagger(), str(tmp_path / "set"))


def test_an_unfinished_run_is_refused_with_the_command_that_helps(weights, tmp_path):
    train_to(tagging(weights), tmp_path / "run", 3)
    with pytest.raises(RecipeError, match=r"so it has no weights yet; `surefoot export .* --weights`"):
        fill(Tagger(), str(tmp_path / "run"))


def test_the_fields_need_each_other():
    with pytest.raises(RecipeError, match="init_accept='head' needs init_from"):
        tagging(accept="head")
    with pytest.raises(RecipeError, match="must be the path of a file or folder"):
        tagging("")


# ------------------------------------------------------------------------------------------- a run of its own


def test_a_resume_does_not_read_the_file_again(weights, tmp_path):
    whole = surefoot.train(tagging(weights), path=str(tmp_path / "whole"))
    train_to(tagging(weights), tmp_path / "parts", 1)
    weights.unlink()
    surefoot.train(tagging(weights), path=str(tmp_path / "parts"))
    run = read_run(tmp_path / "parts")
    assert run.status == "finished"
    assert run.starts > 1
    assert same(load_file(run.weights), load_file(whole.weights))


def test_a_changed_source_is_a_changed_recipe(weights, tmp_path):
    surefoot.train(tagging(weights), path=str(tmp_path / "run"))
    with pytest.raises(RunError, match="init_from was"):
        surefoot.train(tagging(), path=str(tmp_path / "run"))


RECIPE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from surefoot import Recipe

def line() -> Recipe:
    return Recipe(
        model=lambda: nn.Linear(2, 1),
        data=lambda: TensorDataset(torch.randn(32, 2), torch.randn(32, 1)),
        loss=lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1]),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        micro_batch_size=8,
        max_steps=2,
    )
"""


@pytest.mark.parametrize("command", ["train", "check"])
def test_the_command_line_says_what_differs_and_exits(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    Path("line.py").write_text(RECIPE)
    save_file({"weight": torch.ones(1, 2), "scale": torch.ones(1)}, "old.safetensors")
    words = [command, "line.py", "init_from=old.safetensors", *(["--no-plan", "--run", "run"] * (command == "train"))]
    made = CliRunner().invoke(app, words)
    assert made.exit_code != 0
    said = " ".join(f"{made.output} {made.exception}".split())
    assert "only in the model, which keeps its first values, 1: bias" in said
    assert "init_accept='bias,scale'" in said
    assert CliRunner().invoke(app, [*words, "init_accept=bias,scale"]).exit_code == 0
