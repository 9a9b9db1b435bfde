"""Credentials in a URL are refused where a recipe is made, and records can be read by their owner only."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import surefoot
from surefoot.cli.main import app
from surefoot.errors import RecipeError
from surefoot.plain_files import write_whole
from surefoot.recipe.credentials import refuse_credentials, without_credentials
from surefoot.recipe.load import load_recipe

WAYS = {
    "plan": ["--html", "page.html"],
    "check": [],
    "profile": ["--run", "kept"],
    "train": ["--run", "kept"],
}
WITH = {
    "s3://KEYID:HUSH@bucket/run": "s3://bucket/run",
    "s3://KEYID:HU/SH@bucket/run": "s3://bucket/run",
    "s3://KEYID@bucket/run": "s3://bucket/run",
    "https://HUSH@host/a": "https://host/a",
    "simplecache::s3://KEYID:HUSH@bucket/run": "s3://bucket/run",
    "https://host/a?X-Amz-Signature=HUSH&b=1": "https://host/a",
    "https://host/a?token=HUSH": "https://host/a",
    "abfs://container:HUSH@account/a": "abfs://account/a",
    "one s3://KEYID:HUSH@bucket/run two": "s3://bucket/run",
}
WITHOUT = [
    "s3://bucket/run",
    "s3://bucket/run@2",
    "http://127.0.0.1:9000/bucket",
    "http://127.0.0.1:9000/a@b",
    "hf://datasets/me/texts@main/part",
    "abfs://container@account.dfs.core.windows.net/run",
    "https://host/a?part=3",
    "me@host",
    "C:\\runs",
    "",
]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_refuses_a_password_in_a_knob_and_keeps_nothing(way, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [way, "regression", "mirror=s3://KEYID:HUSH@bucket/run", *WAYS[way]]
    done = CliRunner().invoke(app, words)
    said = done.output + str(done.exception)
    assert isinstance(done.exception, RecipeError), said
    assert "mirror=s3://bucket/run has a user, a password or a query" in said
    assert "HUSH" not in said
    assert "KEYID" not in said
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"HUSH" in path.read_bytes()]


@pytest.mark.parametrize("url", WITH)
def test_a_url_with_credentials_is_shown_without_them(url):
    with pytest.raises(RecipeError, match="put credentials into the environment") as refused:
        refuse_credentials({"folder": url})
    assert str(refused.value).startswith(f"folder={WITH[url]} has ")
    assert WITH[url] in without_credentials(url)
    assert "HUSH" not in without_credentials(url)
    assert "KEYID" not in without_credentials(url)


@pytest.mark.parametrize("url", WITHOUT)
def test_any_other_text_is_let_through(url):
    refuse_credentials({"folder": url})
    assert without_credentials(url) == url


def test_any_knob_and_any_field_is_looked_at():
    recipe = load_recipe("regression")
    for changed in ({"init_from": "s3://a:HUSH@b"}, {"knobs": {"mine": "s3://a:HUSH@b"}}):
        with pytest.raises(RecipeError, match="has a user"):
            replace(recipe, **changed)
    with pytest.raises(RecipeError, match="mirror=3 must be a URL"):
        replace(recipe, mirror=3)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_the_records_of_a_run_are_their_owners(small_recipe, tmp_path, usual_umask):
    recipe = small_recipe("regression", "max_steps=2", "layers_every=1")
    plan = surefoot.plan(recipe)
    surefoot.train(recipe, path=str(tmp_path / "run"), plan=plan)
    names = {"run.json", "plan.json", "log.jsonl", "layers.jsonl", "recipe.py", "lock"}
    assert {name: oct(mode(tmp_path / "run" / name)) for name in names} == dict.fromkeys(names, "0o600")


def test_a_record_keeps_the_permissions_that_its_owner_gave_it(tmp_path, usual_umask):
    file = tmp_path / "run.json"
    write_whole(file, "first")
    assert mode(file) == 0o600
    file.chmod(0o660)
    write_whole(file, "second")
    assert mode(file) == 0o660


def test_what_is_made_to_be_given_away_can_be_read(tmp_path, usual_umask):
    write_whole(tmp_path / "page.html", "all of it", shared=True)
    assert mode(tmp_path / "page.html") == 0o644


def test_a_link_lends_a_record_no_permissions(tmp_path, usual_umask):
    (tmp_path / "open").touch(mode=0o644)
    (tmp_path / "run.json").symlink_to(tmp_path / "open")
    write_whole(tmp_path / "run.json", "mine")
    assert mode(tmp_path / "run.json") == 0o600
