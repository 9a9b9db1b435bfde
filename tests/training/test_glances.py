"""While a run trains, the watcher looks at some of its steps; what it finds becomes an event of the run."""

import dataclasses
import json

import torch
import torch.nn.functional as F
from torch import nn

import surefoot
from surefoot.checks.run_throttle import RunThrottle


def with_softmax(recipe):
    def loss(model, batch):
        tokens, targets = batch
        return F.cross_entropy(model(tokens).flatten(0, 1).softmax(-1), targets.flatten())

    return dataclasses.replace(recipe, loss=loss)


def test_a_bug_of_the_recipe_is_told_once_and_kept_with_the_run(small_recipe, tmp_path):
    recipe = with_softmax(small_recipe("gpt", "max_steps=12"))
    run = surefoot.train(recipe, path=str(tmp_path / "run"))
    told = [event for event in run.happened() if event.kind == "finding"]
    assert [event.text.partition(":")[0] for event in told] == ["softmax-before-cross-entropy"]
    kept = json.loads(run.findings.read_text())["findings"]
    assert [finding["check"] for finding in kept] == ["softmax-before-cross-entropy"]


def test_a_sound_recipe_has_no_such_event(small_recipe, tmp_path):
    run = surefoot.train(small_recipe("gpt", "max_steps=12"), path=str(tmp_path / "run"))
    assert [event.kind for event in run.happened() if event.kind == "finding"] == []
    assert not run.findings.exists()


def test_few_steps_are_looked_at():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    glances, plain, looked = RunThrottle(model, optimizer), torch.save, []
    for step in range(1, 1001):
        with glances.at(step):
            looked += [step] if torch.save is not plain else []
    assert looked == [1, 2, 3, 10, 100, 1000]
