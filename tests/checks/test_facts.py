"""Facts are plain data by subject: rules name what they read, need no torch, and read every field there is."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.checks import facts
from surefoot.checks.facts import Facts, merged
from surefoot.checks.facts.loop import Backward, LoopFacts, Optimizing, Update
from surefoot.checks.facts.losses import Loss, LossFacts, Term
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.facts.text import Sequence, TextFacts
from surefoot.checks.registry import CHECKS, EXPLAINS, facts_of, judged, run_checks

FOLDER = Path(facts.__file__).parent


def classes() -> list[type]:
    modules = [importlib.import_module(f"{facts.__name__}.{each.name}") for each in pkgutil.iter_modules([str(FOLDER)])]
    return [
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each) and dataclasses.is_dataclass(each) and each.__module__ == module.__name__
    ]


SUBJECTS = [each for each in classes() if each.__name__.endswith("Facts")]


def names_read() -> set[str]:
    """Every attribute that a rule reads, or that facts read of each other."""
    files = [*FOLDER.parent.glob("*/rules/*.py"), *FOLDER.glob("*.py")]
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files)
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_no_field_of_facts_is_read_by_no_rule():
    read = names_read()
    unread = [f"{each.__name__}.{field.name}" for each in classes() for field in dataclasses.fields(each)
              if field.name not in read]  # fmt: skip
    assert not unread
    assert "no_such_field" not in read


def names_handed_over() -> set[str]:
    """Every field that is given to a record of facts somewhere in the package, or replaced in one."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in FOLDER.parent.parent.rglob("*.py"))
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    makers = {"replace", *(kind.__name__ for kind in SUBJECTS)}
    made = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id in makers)
    return {str(keyword.arg) for call in made for keyword in call.keywords}


def test_no_field_of_facts_is_handed_over_by_nobody():
    given = names_handed_over()
    missing = [f"{kind.__name__}.{field.name}" for kind in SUBJECTS for field in dataclasses.fields(kind)
               if field.name not in given]  # fmt: skip
    assert not missing


def test_what_several_observers_collect_is_joined_in_their_order():
    one, other = Term("a.py:1", 1.0), Term("a.py:2", 2.0)
    merged_facts = merged([LossFacts(terms=(one,)), LoopFacts(ended=True), LossFacts(terms=(other,), known=())])
    assert merged_facts[LossFacts] == LossFacts(terms=(one, other))
    assert merged_facts[LoopFacts] == LoopFacts(ended=True)
    assert merged_facts[TextFacts] == TextFacts()


def test_what_one_observer_knows_stays_whoever_is_asked_first():
    parts = [SampleFacts(part_of=8), SampleFacts(reorders=False), SampleFacts()]
    for order in (parts, parts[::-1]):
        assert merged(order)[SampleFacts] == SampleFacts(part_of=8, reorders=False)


def test_two_observers_cannot_set_the_same_field():
    with pytest.raises(ValueError, match=r"two observers hand over SampleFacts\.part_of: 8 and 9"):
        merged([SampleFacts(part_of=8), SampleFacts(part_of=9)])


def test_what_a_rule_is_given_cannot_be_changed():
    assert len(SUBJECTS) == 11
    for kind in SUBJECTS:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(kind(), dataclasses.fields(kind)[0].name, ())


def test_every_rule_names_its_facts_and_every_subject_is_read():
    read = {kind for check in CHECKS.values() for kind in facts_of(check)}
    assert read == set(SUBJECTS)
    assert all(facts_of(check) for check in CHECKS.values())


def test_rules_are_silent_where_nothing_was_seen():
    assert run_checks(Facts(), recipe="nothing").findings == ()


def test_what_explains_and_what_is_explained_are_checks():
    for name, explained in EXPLAINS.items():
        assert {name, *explained} <= set(CHECKS)
        assert name not in explained


def test_a_rule_judges_facts_that_were_made_by_hand():
    given = Facts(LossFacts(losses=(Loss("mse_loss", "a.py:3", "mean", (8, 1), (8,), 0, broadcast=(8, 8)),)))
    (found,) = judged(CHECKS["broadcast-loss"], given)
    assert (found.check, found.severity, found.where) == ("broadcast-loss", "error", "a.py:3")
    assert "(8, 1)" in found.seen
    spared = Facts(LossFacts(losses=(Loss("mse_loss", "a.py:3", "mean", (8, 1), (8, 1), 0),)))
    assert not list(judged(CHECKS["broadcast-loss"], spared))


def test_a_cause_leaves_out_its_symptoms():
    padded = Sequence("Model", "a.py:9", 1, 1.0, padding_counted=3, padding_seen_by="a mask")
    facts_seen = Facts(TextFacts(sequences=(padded,)))
    assert [each.check for each in run_checks(facts_seen, recipe="r").findings] == ["padding-in-loss"]
    assert "padding-in-loss" in EXPLAINS["interleaved-zero-tokens"]


def test_rules_run_on_facts_without_torch_in_milliseconds():
    program = (
        "import sys, time\n"
        "from surefoot.checks.facts import Facts\n"
        "from surefoot.checks.facts.loop import LoopFacts, Optimizing, Update\n"
        "from surefoot.checks.registry import run_checks\n"
        "updates = tuple(Update(n, 0, 'a.py:1', 2, ('w',), 2, rate=0.1) for n in range(1, 9))\n"
        "given = Facts(LoopFacts(updates=updates, optimizers=(Optimizing('SGD', 8, 2, 0, (), 2),)))\n"
        "began = time.perf_counter()\n"
        "found = run_checks(given, recipe='by hand').findings\n"
        "assert time.perf_counter() - began < 0.5\n"
        "assert 'torch' not in sys.modules\n"
        "print([each.check for each in found])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "missing-zero-grad" in done.stdout, done.stderr


def test_the_order_of_facts_does_not_matter():
    update = Update(1, 0, "a.py:1", 2, ())
    backward = Backward("a.py:2", True, True, True, ())
    loop = LoopFacts(updates=(update,), backwards=(backward,), optimizers=(Optimizing("SGD", 1, 2, 0, (), 2),))
    one, other = Facts(loop, LossFacts()), Facts(LossFacts(), loop)
    assert run_checks(one, recipe="r") == run_checks(other, recipe="r")
    assert one.having(LoopFacts())[LoopFacts] == LoopFacts()
