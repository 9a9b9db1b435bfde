"""generate: text from a trained model, the same with and without a cache of keys and values."""

import math
from itertools import islice

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.data.tokenize import tokenize
from surefoot.errors import DataError, RunError
from surefoot.exports.decode import Cache, Decoder, Sampling
from surefoot.recipe.load import load_recipe
from surefoot.records.codec import from_json
from surefoot.records.generated import Generated
from surefoot.reports.visible import visible
from tests.terminals import LIVE, terminal

GREEDY = Sampling(temperature=0)
SMALL = {
    "gpt": ["layers=2", "width=32", "heads=2", "context=32"],
    "llama": ["layers=2", "context=32"],
}


def model_of(name: str) -> nn.Module:
    torch.manual_seed(3)
    model = load_recipe(name, SMALL[name]).model().eval()
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(3)  # so that the likeliest token is well ahead of the next one
    return model


def decoder(model: nn.Module, *, cached: bool, context: int = 32, prompt=b"def ") -> Decoder:
    return Decoder(model, list(prompt), context=context, pick=GREEDY.picker(), cached=cached)


def first(model: nn.Module, count: int, *, cached: bool, context: int = 32, prompt=b"def ") -> list[int]:
    with torch.no_grad():
        return list(islice(decoder(model, cached=cached, context=context, prompt=prompt), count))


def is_cached(model: nn.Module) -> bool:
    made = decoder(model, cached=True)
    next(iter(made))
    return made.is_cached


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    words = [*SMALL["gpt"], "max_steps=3", "micro_batch_size=2", "global_batch_tokens=64"]
    return surefoot.train(load_recipe("gpt", words), path=str(tmp_path_factory.mktemp("gpt") / "run"))


# ------------------------------------------------------------------------------------------- the cache


@pytest.mark.sweep
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("prompt", [b"d", b"def main(", bytes(40)])
def test_cached_tokens_are_those_of_the_whole_text(name, prompt):
    model = model_of(name)
    assert is_cached(model)
    assert first(model, 90, cached=True, prompt=prompt) == first(model, 90, cached=False, prompt=prompt)


def test_the_cache_is_used(monkeypatch):
    model, widths = model_of("gpt"), []
    model.register_forward_pre_hook(lambda _, args: widths.append(args[0].shape[1]))
    first(model, 6, cached=True)
    assert widths == [4, 1, 1, 1, 1, 1]


class Masked(nn.Module):
    """Attends with a mask of its own, so its keys may not be kept."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)

    def forward(self, tokens, start=0):
        x = self.token(tokens)
        seen = torch.ones(x.shape[1], x.shape[1]).tril().bool()
        return self.head(nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=seen))


class Recurrent(nn.Module):
    """Knows nothing of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.body, self.head = nn.Embedding(256, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 256)

    def forward(self, tokens):
        return self.head(self.body(self.token(tokens))[0])


@pytest.mark.parametrize("kind", [Masked, Recurrent])
def test_models_that_cannot_be_cached_read_the_whole_text(kind):
    torch.manual_seed(0)
    model = kind()
    assert first(model, 20, cached=True) == first(model, 20, cached=False)
    assert not is_cached(model)


def test_a_full_context_forgets_its_older_half():
    model, widths = model_of("gpt"), []
    model.register_forward_pre_hook(lambda _, args: widths.append(args[0].shape[1]))
    first(model, 12, cached=False, context=8)
    assert widths == [4, 5, 6, 7, 8, 4, 5, 6, 7, 8, 4, 5]


def test_a_cache_outside_attention_changes_nothing():
    with Cache() as cache:
        assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
    assert cache.kept == []


# ------------------------------------------------------------------------------------------- choosing


LOGITS = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()


@pytest.mark.parametrize(
    ("sampling", "chances"),
    [
        (Sampling(temperature=1), [0.5, 0.25, 0.15, 0.1]),
        (Sampling(temperature=1, top_k=2), [2 / 3, 1 / 3, 0, 0]),
        (Sampling(temperature=1, top_p=0.7), [2 / 3, 1 / 3, 0, 0]),
        (Sampling(temperature=1, top_p=0.75), [2 / 3, 1 / 3, 0, 0]),
        (Sampling(temperature=1, top_p=0.01), [1, 0, 0, 0]),
        (Sampling(temperature=1, top_k=9), [0.5, 0.25, 0.15, 0.1]),
        (Sampling(temperature=0), [1, 0, 0, 0]),
    ],
)
def test_tokens_come_as_often_as_they_should(sampling, chances):
    pick, draws = sampling.picker(), 4000
    counts = torch.bincount(torch.tensor([pick(LOGITS) for _ in range(draws)]), minlength=4) / draws
    for found, chance in zip(counts.tolist(), chances, strict=True):
        assert abs(found - chance) <= 5 * math.sqrt(chance * (1 - chance) / draws)


def test_the_seed_decides(run):
    texts = [surefoot.generate(run.path, "def ", tokens=20, sampling=Sampling(seed=seed)).text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


# ------------------------------------------------------------------------------------------- the command


def test_the_command_prints_the_prompt_and_the_text(run):
    made = CliRunner().invoke(app, ["generate", run.path, "def ", "--tokens", "12", "--temperature", "0"])
    assert made.exit_code == 0
    record = surefoot.generate(run.path, "def ", tokens=12, sampling=GREEDY)
    assert made.stdout == f"def {record.text}\n"
    assert "12 tokens, " in made.stderr


def test_a_terminal_is_sent_no_control_character_and_a_pipe_is_sent_all(run, monkeypatch):
    words = ["generate", run.path, "de\x1b[31mf\t\n\x9b\u202e", "--tokens", "150", "--temperature", "5"]
    piped = CliRunner().invoke(app, words).stdout
    assert len(set(LIVE.findall(piped))) > 10
    with terminal(monkeypatch) as sent:
        app(words, standalone_mode=False)
    assert sent == [visible(piped)]
    assert sent[0].startswith("de\\x1b[31mf\t\n\\x9b\\u202e")
    assert LIVE.findall(sent[0]) == []
    record = from_json(Generated, CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert record.prompt + record.text + "\n" == piped


def test_the_record_is_json(run):
    made = CliRunner().invoke(app, ["generate", run.path, "x", "--tokens", "3", "--json", "--no-cache"])
    record = from_json(Generated, made.stdout)
    assert (record.tokens, record.cached, record.prompt) == (3, False, "x")


def test_what_makes_no_text_is_refused(run, small_recipe, tmp_path):
    with pytest.raises(RunError, match="the prompt is empty"):
        surefoot.generate(run.path, "")
    with pytest.raises(RunError, match="no tokenizer 'absent'"):
        surefoot.generate(run.path, "x", tokenizer="absent")
    (tmp_path / "cut.json").write_bytes(b'{"model": "\xff')
    with pytest.raises(DataError, match=r"cut\.json is not a tokenizer\.json: "):
        surefoot.generate(run.path, "x", tokenizer=str(tmp_path / "cut.json"))
    other = surefoot.train(small_recipe("sentiment", "max_steps=1"), path=str(tmp_path / "other"))
    with pytest.raises(RunError, match="does not say how its text became tokens"):
        surefoot.generate(other.path, "x")
    image = surefoot.train(small_recipe("regression", "max_steps=1"), path=str(tmp_path / "image"))
    with pytest.raises(RunError, match="does not take tokens alone, so it makes no text: RuntimeError"):
        surefoot.generate(image.path, "x", tokenizer="bytes")


def test_a_refusal_stands_on_a_line_of_its_own(run):
    made = CliRunner().invoke(app, ["generate", run.path, "x", "--tokenizer", "absent"])
    assert (made.stdout, made.exit_code) == ("", 1)


def test_a_tokenised_corpus_brings_its_tokenizer(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("the cat sat on the mat, the café was shut. " * 200)
    tokenize([f"text={tmp_path}/text/*.txt"], tmp_path / "corpus", tokenizer="bpe:300")
    words = [*SMALL["gpt"], "max_steps=1", "micro_batch_size=2", "global_batch_tokens=64", f"corpus={tmp_path}/corpus"]
    run = surefoot.train(load_recipe("gpt", words), path=str(tmp_path / "run"))
    pieces = list[str]()
    made = surefoot.generate(run.path, "the café", tokens=15, tell=pieces.append)
    assert "".join(pieces) == made.text
    assert made.tokens == 15


def test_an_export_and_its_hugging_face_folder_go_on_as_the_run_does(run, tmp_path):
    made = surefoot.export(run.path, to=str(tmp_path), formats=["hf"])
    whole = surefoot.generate(run.path, "def ", tokens=20, sampling=GREEDY)
    assert surefoot.generate(made.weights, "def ", tokens=20, sampling=GREEDY).text == whole.text
    pieces = list[str]()
    theirs = surefoot.generate(made.formats[0].path, "def ", tokens=20, sampling=GREEDY, tell=pieces.append)
    assert theirs.text == whole.text
    assert "".join(pieces) == theirs.text
    drawn = [surefoot.generate(made.formats[0].path, "def ", tokens=9, sampling=Sampling(seed=4)) for _ in range(2)]
    assert drawn[0].text == drawn[1].text


def test_a_hugging_face_folder_with_pickles_or_code_executes_none(tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.GPT2Config(n_layer=1, n_head=1, n_embd=8).save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02cos\nmkdir\n(X\x08\x00\x00\x00EXECUTEDtR.")
    with pytest.raises(RunError, match=r"holds no \.safetensors; write the model with save_pretrained"):
        surefoot.generate(str(tmp_path), "a")
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(RunError, match=r"transformers cannot load .*: "):
        surefoot.generate(str(tmp_path), "a")
    with open(tmp_path / "config.json", "wb") as file:
        file.truncate(1 << 40)  # python's own MemoryError has no text
    with pytest.raises(RunError, match=r"transformers cannot load .*: MemoryError$"):
        surefoot.generate(str(tmp_path), "a")
