"""Models by their name, from a hub on loopback: what is downloaded, what is pinned, and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from huggingface_hub import constants
from safetensors.torch import load_file

import surefoot
from surefoot import load_recipe
from surefoot.errors import RecipeError
from surefoot.finetuning import hub as module
from surefoot.finetuning.hub import CONFIG, WEIGHTS, folder_of, pinned, said
from tests import hubs, tuned_models
from tests.command_line import surefoot as command
from tests.waiting import until

pytest.importorskip("peft", reason="pip install peft")
SMALL = ("context=16", "rank=2", "max_steps=2", "micro_batch_size=2")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tuned_models.llama(tmp_path_factory.mktemp("models") / "tiny", vocab_size=300)
    tuned_models.tokenizer(folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# tiny\n")
    (folder / "LICENSE").write_text("Do as you like.\n")
    return folder


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub, and an empty cache. huggingface_hub reads its address and its cache when it is loaded."""
    with hubs.serving() as served:
        here = {
            "ENDPOINT": served.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": served.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path / "cache"),
        }
        for name, value in here.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)
        _new_process()
        yield served
    _new_process()


def _new_process() -> None:
    """Forgets what the hub has said, as a new process would."""
    module._asked.cache_clear()


def whole_weights(cache: Path) -> list[Path]:
    return list(cache.glob("models--*/snapshots/*/model*.safetensors"))


def test_a_plan_downloads_the_config_alone(hub, model):
    commit = hub.add("org/tiny", model)
    made = command("plan", "finetune", "model=org/tiny", *SMALL, "--on", "rtx-4090", "--json")
    assert made.exit_code == 0, made.output
    assert set(hub.sent) == {"info", "config.json"}
    assert sum(hub.sent.values()) < 10_000
    size = (model / "model.safetensors").stat().st_size / 1024
    told = f"org/tiny: commit {commit[:12]}, licence apache-2.0, weights {size:.2f} KiB in 1 file, to be downloaded"
    assert told in made.stderr


def test_a_run_trains_the_weights_of_the_hub_and_keeps_the_commit(hub, model, tmp_path):
    commit = hub.add("org/tiny", model, **{"evil.py": b"raise SystemExit", "pytorch_model.bin": b"\x80\x04"})
    recipe = load_recipe("finetune", ["model=org/tiny", *SMALL])
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    assert run.knobs["model"] == run.settings["init_from"] == f"org/tiny@{commit}"
    assert not {"evil.py", "pytorch_model.bin"} & set(hub.sent)
    before, after = load_file(model / "model.safetensors"), load_file(run.weights)
    assert after["base_model.model.model.embed_tokens.weight"].equal(before["model.embed_tokens.weight"])


def test_a_resume_stays_at_the_commit_of_the_start(hub, model, tmp_path):
    hub.add("org/tiny", model)
    words = ("train", "finetune", "model=org/tiny", *SMALL, "save_every=1", "--no-plan", "--run", str(tmp_path / "run"))
    assert command(*words).exit_code == 0
    other = json.loads((model / "config.json").read_text()) | {"rms_norm_eps": 0.1}
    hub.add("org/tiny", model, **{"config.json": json.dumps(other).encode(), "more.txt": b""})
    _new_process()
    assert command(*words).exit_code == 0
    kept = surefoot.read_run(tmp_path / "run")
    assert kept.knobs["model"] == f"org/tiny@{hub.commits['org/tiny'][0][0]}"
    with pytest.raises(surefoot.errors.RunError, match="model was 'org/tiny@"):
        surefoot.train(load_recipe("finetune", ["model=org/tiny", *SMALL, "save_every=1"]), path=kept.path)


def test_what_was_downloaded_goes_on_working_without_the_hub(hub, model, monkeypatch):
    commit = hub.add("org/tiny", model)
    folder = folder_of(pinned("org/tiny"), WEIGHTS)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    _new_process()
    asked = len(hub.asked)
    assert folder_of(pinned("org/tiny"), WEIGHTS) == folder
    assert f"the hub did not answer (Cannot reach {hub.url}" in said("org/tiny@main")
    assert commit[:12] in said("org/tiny@main")
    assert len(hub.asked) == asked
    with pytest.raises(RecipeError, match="its cache has no org/absent at main"):
        pinned("org/absent")


def test_a_pinned_model_that_is_here_whole_asks_the_hub_nothing(hub, model):
    name = f"org/tiny@{hub.add('org/tiny', model)}"
    folder_of(name, WEIGHTS)
    _new_process()
    asked = len(hub.asked)
    assert said(name).endswith("licence apache-2.0, weights in the cache")
    assert pinned(name) == name
    folder_of(name, WEIGHTS)
    assert len(hub.asked) == asked


def test_of_a_set_of_files_a_part_is_not_taken_for_the_model(hub, model, monkeypatch):
    parts = {f"model-0000{each}-of-00002.safetensors": bytes([each]) * 30_000 for each in (1, 2)}
    index = {"weight_map": dict(zip(("a", "b"), parts, strict=True))}
    files = {**parts, "model.safetensors.index.json": json.dumps(index).encode(), "model.safetensors": None}
    name = f"org/tiny@{hub.add('org/tiny', model, **files)}"
    hub.cut["model-00002-of-00002.safetensors"] = 20_000
    with pytest.raises(RecipeError, match=r"model-00002-of-00002\.safetensors of org/tiny was not downloaded"):
        folder_of(name, WEIGHTS)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    _new_process()
    with pytest.raises(RecipeError, match="the cache has only a part of org/tiny"):
        folder_of(name, WEIGHTS)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.cut.clear()
    _new_process()
    folder = Path(folder_of(name, WEIGHTS))
    assert {each: (folder / each).read_bytes() for each in parts} == parts


def test_a_file_with_another_hash_is_removed(hub, model, tmp_path):
    name = f"org/tiny@{hub.add('org/tiny', model)}"
    hub.damaged.add("model.safetensors")
    with pytest.raises(
        RecipeError, match=r"model\.safetensors of org/tiny had the hash \w+ in place of \w+, so it was"
    ):
        folder_of(name, WEIGHTS)
    assert not whole_weights(tmp_path)
    hub.damaged.clear()
    folder = Path(folder_of(name, WEIGHTS))
    assert (folder / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


def test_a_file_that_was_cut_on_this_disk_is_removed(hub, model, tmp_path):
    name = f"org/tiny@{hub.add('org/tiny', model)}"
    folder_of(name, CONFIG)
    (config,) = tmp_path.glob("cache/models--*/blobs/*")
    config.write_bytes(config.read_bytes()[:-7])
    with pytest.raises(RecipeError, match=r"config\.json of org/tiny had \d+ bytes in place of \d+"):
        folder_of(name, CONFIG)
    folder_of(name, CONFIG)


REFUSED = {
    "only a pickle": (
        {"model.safetensors": None, "pytorch_model.bin": b"\x80\x04"},
        r"org/tiny holds no safetensors at commit \w{12}; pytorch_model.bin may be a pickle, which can execute code",
    ),
    "no config": ({"config.json": None}, r"org/tiny has no config.json at commit \w{12}$"),
    "an adapter": (
        {"config.json": None, "adapter_config.json": b"{}"},
        "it holds an adapter: name the model that the adapter was made for",
    ),
    "GGUF": (
        {"config.json": None, "model.safetensors": None, "tiny.gguf": b"GGUF"},
        "it holds GGUF, which cannot be trained",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_repository_that_is_no_model_to_train_is_refused_before_its_weights_are_asked_for(hub, model, kind):
    changed, message = REFUSED[kind]
    hub.add("org/tiny", model, **changed)
    with pytest.raises(RecipeError, match=message):
        folder_of(pinned("org/tiny"), WEIGHTS)
    assert set(hub.sent) <= {"info", "config.json"}


def test_a_config_that_is_none_is_refused(hub, model):
    hub.add("org/tiny", model, **{"config.json": b"{"})
    with pytest.raises(RecipeError, match=r"config\.json is (damaged|not)"):
        load_recipe("finetune", ["model=org/tiny", *SMALL])


def test_code_of_a_repository_is_not_run(hub, model):
    mapped = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    hub.add("org/tiny", model, **{"config.json": json.dumps(mapped).encode(), "own.py": b"open('ran', 'w')"})
    with pytest.raises(RecipeError, match="is not a config that transformers can read"):
        load_recipe("finetune", ["model=org/tiny", *SMALL])
    assert "own.py" not in hub.sent
    assert not Path("ran").exists()


def test_names_that_the_hub_does_not_have(hub, model):
    hub.add("org/tiny", model)
    with pytest.raises(RecipeError, match="there is no folder org/tinny, and the hub has no model of that name"):
        pinned("org/tinny")
    with pytest.raises(RecipeError, match="the hub has org/tiny, but no revision v2"):
        pinned("org/tiny@v2")
    gone = f"org/tiny@{'0' * 40}"
    with pytest.raises(RecipeError, match=r"but no revision 0{40}: it may have been removed"):
        folder_of(gone, WEIGHTS)


def test_a_revision_that_the_hub_removed_is_used_from_the_cache(hub, model):
    name = f"org/tiny@{hub.add('org/tiny', model)}"
    folder = folder_of(name, WEIGHTS)
    hub.commits["org/tiny"].clear()
    _new_process()
    assert folder_of(name, WEIGHTS) == folder


def test_folders_come_first(hub, model, tmp_path):
    hub.add("org/tiny", model)
    for name in ("org/absent", "tiny", "./org/tiny", "/org/tiny"):
        (tmp_path / "org").mkdir(exist_ok=True)
        assert pinned(name) == name
    shutil.copytree(model, tmp_path / "org" / "tiny@2")
    assert pinned("org/tiny@2") == folder_of("org/tiny@2", WEIGHTS) == "org/tiny@2"
    assert not hub.asked


def test_a_full_disk_is_said_before_the_download(hub, model, monkeypatch):
    hub.add("org/tiny", model)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(RecipeError, match=r"org/tiny takes [\d.]+ KiB, and .* has 1,?000 B free"):
        folder_of(pinned("org/tiny"), WEIGHTS)
    assert "model.safetensors" not in hub.sent


def test_killed_in_the_middle_of_a_download_nothing_is_taken_for_whole(hub, model, tmp_path):
    name = f"org/tiny@{hub.add('org/tiny', model)}"
    hub.held["model.safetensors"] = threading.Event()
    program = f"from surefoot.finetuning.hub import *; folder_of({name!r}, WEIGHTS)"
    child = subprocess.Popen([sys.executable, "-c", program], env=dict(os.environ))
    until(hub.half.is_set, process=child)
    until(lambda: list(tmp_path.glob("cache/**/*.incomplete")), process=child)
    child.send_signal(signal.SIGKILL)
    child.wait()
    hub.held.pop("model.safetensors").set()
    assert not whole_weights(tmp_path / "cache")
    _new_process()
    folder = Path(folder_of(name, WEIGHTS))
    assert (folder / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


def test_an_exported_folder_has_a_card_with_the_base_its_licence_and_the_figures(hub, model, tmp_path):
    commit = hub.add("org/tiny", model)
    run = surefoot.train(load_recipe("finetune", ["model=org/tiny", *SMALL]), path=str(tmp_path / "run"))
    made = surefoot.export(run.path, formats=["hf"])
    folder = Path(made.formats[0].path)
    card = (folder / "README.md").read_text()
    from huggingface_hub import ModelCard

    data = ModelCard(card).data.to_dict()
    assert data["base_model"] == "org/tiny"
    assert (data["license"], data["library_name"]) == ("apache-2.0", "transformers")
    assert f"org/tiny@{commit}" in card
    assert f"| last training loss | {run.last_loss:.6g} |" in card
    assert (folder / "LICENSE").read_text() == "Do as you like.\n"
    assert (folder / "chat_template.jinja").read_text() == tuned_models.TEMPLATE
    assert "snapshots" not in (folder / "config.json").read_text()
    assert json.loads((tmp_path / "run/export/adapter/adapter_config.json").read_text())["base_model_name_or_path"] == (
        "org/tiny"
    )
