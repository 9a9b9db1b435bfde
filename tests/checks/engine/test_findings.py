"""What every finding has in common: checks can be allowed, lines are named, errors of a recipe are its own."""

import inspect

import pytest
import torch
import torch.nn.functional as F

import surefoot
from tests.checks.programs import X, Y, mlp, plain


def test_a_check_can_be_allowed_and_an_unknown_one_is_refused():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with surefoot.watch(model, optimizer, allow=["missing-zero-grad"]) as seen:
        for _ in range(3):
            F.cross_entropy(model(X), Y).backward()
            optimizer.step()
    assert seen.findings.findings == ()
    assert seen.findings.allowed == ("missing-zero-grad",)
    with surefoot.watch(model, allow=["zero-grad"]) as seen:
        pass
    with pytest.raises(surefoot.SurefootError, match=r"'zero-grad'; did you mean .*'missing-zero-grad'\? known: act"):
        _ = seen.findings


def test_the_line_of_user_code_is_named():
    finding = plain(mlp(), zero=False).findings[0]
    line = next(n for n, text in enumerate(inspect.getsourcelines(plain)[0]) if ".backward()" in text)
    assert finding.where == f"{inspect.getsourcefile(plain)}:{inspect.getsourcelines(plain)[1] + line}"


def test_a_recipe_whose_loss_has_no_graph_is_a_finding_and_not_a_traceback(small_recipe):
    import dataclasses

    recipe = small_recipe("sentiment")
    broken = dataclasses.replace(recipe, loss=lambda model, batch: recipe.loss(model, batch)[0].detach())
    findings = surefoot.check(broken)
    assert [finding.check for finding in findings.errors] == ["detached-loss"]
    assert findings.findings[0].where == "the recipe's loss"


def test_an_error_of_the_recipe_itself_is_not_swallowed(small_recipe):
    import dataclasses

    def loss(model, batch):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        surefoot.check(dataclasses.replace(small_recipe("sentiment"), loss=loss))
