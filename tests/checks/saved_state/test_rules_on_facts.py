"""The rules of saved state on facts made by hand: each on the facts of its bug, and on the nearest that are fine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.checks.facts.models import ModelFacts
from surefoot.checks.facts.samples import SampleFacts
from surefoot.checks.facts.saved_state import HeldCounter, LostState, SavedStateFacts
from tests.checks.by_hand import Limit, Rules, also, but
from tests.checks.facts import file, layout, probe, resumption, samples

rule = Rules()


@pytest.mark.parametrize("shown", rule.shown)
def test_a_rule_reports_the_facts_of_its_bug(shown):
    shown.holds()


@pytest.mark.parametrize("spared", rule.spared)
def test_it_spares_the_nearest_facts_that_are_fine(spared):
    spared.holds()


@pytest.mark.parametrize("limited", rule.limits)
@settings(max_examples=10, deadline=None, database=None)
@given(data=st.data())
def test_a_number_counts_from_its_limit_on(limited, data):
    limited.holds(data)


# ------------------------------------------------------------------------------------------- files


@rule(
    "best-weights-by-reference",
    "weights were loaded later but share memory with the model, which kept training",
    "resume.py:4",
    severity="error",
    spared=[but(kind="module")],
    also=[
        also("weights were kept in a list but share memory", severity="warning", detail="kept in a list"),
        also("weights were loaded later", at="state_dict", where=""),
    ],
)
def _(kind="alias", detail="loaded later", **fields):
    kept = file(kind=kind, where="other.py:1", detail="kept in a dict") if detail == "loaded later" else None
    return SavedStateFacts(files=(*[kept] * bool(kept), file(kind=kind, detail=detail, **fields)))


@rule(
    "checkpoint-without-optimizer",
    "1 file with weights and a step count, but without optimizer state",
    "resume.py:4",
    spared=[but(kind="module")],
    also=[also("1 file", at="torch.save", where="")],
)
def _(kind="without-optimizer", **fields):
    return SavedStateFacts(files=(file(kind=kind, **fields),))


@rule(
    "few-matching-weights",
    "10 of the model's 100 elements matched a file of 120; it holds module.body.weight",
    "resume.py:4",
    severity="error",
    spared=[but(kind="alias")],
    also=[
        also("10 of the model's 100 elements", severity="warning", kind="unused-load"),
        also("10 of the model's 100 elements", at="load_state_dict", where=""),
    ],
    limits={"matched": Limit(50, 49), "misnamed": Limit(49, 50)},
)
def _(kind="loose-load", matched=10, misnamed=110, detail="module.body.weight", **fields):
    counts = {"matched": matched, "wanted": 100, "found": 120, "misnamed": misnamed}
    return SavedStateFacts(files=(file(kind=kind, detail=detail, **counts, **fields),))


@rule(
    "few-matching-weights",
    "10 of the model's 200 elements",
    "resume.py:4",
    severity="error",
    limits={"found": Limit(20, 21)},
)
def _(found=40):
    return SavedStateFacts(files=(file(kind="loose-load", matched=10, wanted=200, found=found, misnamed=200),))


@rule(
    "pickled-module",
    "the saved object is a dict with the module itself",
    "resume.py:4",
    severity="info",
    spared=[but(kind="alias")],
    also=[
        also("under the names they have inside a wrapper", kind="wrapper-names"),
        also("the saved object is a dict", at="torch.save", where=""),
    ],
)
def _(kind="module", **fields):
    return SavedStateFacts(files=(file(kind=kind, detail="dict", **fields),))


@rule(
    "unrestored-optimizer",
    "a loaded file holds the state of an optimizer, but no optimizer loaded it",
    "resume.py:4",
    spared=[but(kind="unrestored-scheduler")],
    also=[
        also("with an optimizer that lost its moments", kind="forgotten-moments"),
        also("an optimizer loaded a state without moments", detail="no moments"),
        also("a loaded file holds the state", at="torch.load", where=""),
    ],
)
def _(kind="unrestored-optimizer", **fields):
    return SavedStateFacts(files=(file(kind=kind, **fields),))


@rule(
    "unrestored-scheduler",
    "the scheduler was not restored: the rate is 0.1, not 0.01",
    "resume.py:4",
    spared=[but(kind="unrestored-optimizer")],
    also=[also("the scheduler was not restored", at="torch.load", where="")],
)
def _(kind="unrestored-scheduler", **fields):
    return SavedStateFacts(files=(file(kind=kind, detail="the rate is 0.1, not 0.01", **fields),))


# ------------------------------------------------------------------------------------------- where a run resumes


@rule(
    "counter-off-after-resume",
    "'epoch' was 3 in the file; the next file says 4, not 5",
    "resume.py:4",
    spared=[but(saved=None), but(saved=5)],
    also=[also("the next file says 4", held=3)],
)
def _(saved=4, held=None):
    """If an attribute of an object also shows it, the bug is reported once."""
    beside = (HeldCounter("resume.py:4", "epoch", 3, "trainer.epoch", held, 4),) if held else ()
    return SavedStateFacts(resumptions=(resumption(saved=saved, expected=5),), held_counters=beside)


@rule(
    "counter-off-after-resume",
    "'epoch' was 3 in the file; training resumes with trainer.epoch 3, not 4",
    "resume.py:4",
    spared=[but(count=0)],
)
def _(count=1):
    held = HeldCounter("resume.py:4", "epoch", 3, "trainer.epoch", 3, 4)
    return SavedStateFacts(held_counters=(held,) * count, resumptions=(resumption(saved=5, expected=5),))


@rule(
    "data-position-lost-on-resume",
    "'step' is 150, 50 updates into a pass; the pass starts over",
    "resume.py:4",
    severity="info",
    spared=[but(in_epoch=0), but(skipped=1)],
)
def _(in_epoch=50, skipped=0):
    one = resumption(counter="step", loaded=150, in_epoch=in_epoch, skipped=skipped)
    return SavedStateFacts(resumptions=(resumption(), one, one))


@rule(
    "data-position-lost-on-resume",
    "the file holds the state of the generator of torch as 'rng'; nothing reads it, but training draws from it",
    "resume.py:4",
    spared=[but(count=0)],
    also=[also("the state of the generator 'shuffler' as 'rng'", whose="shuffler")],
)
def _(whose="torch", count=1):
    return SavedStateFacts(lost_states=(LostState("resume.py:4", "rng", whose),) * count)


# ------------------------------------------------------------------------------------------- state that is lost


@rule(
    "state-lost-on-reload",
    "a file holds all parameters but no buffers, although training changed them: bn1.running_mean",
    "resume.py:4",
    spared=[but(kind="alias")],
    also=[also("a file holds all parameters", at="torch.save", where="")],
)
def _(kind="without-buffers", **fields):
    return SavedStateFacts(files=(file(kind=kind, detail="bn1.running_mean", **fields),))


@rule(
    "state-lost-on-reload",
    "1 tensor changed in training, in no state_dict: net.running",
    "net.running",
    spared=[but(lost=()), but(idle=("net.running",))],
    also=[also("1 tensor changed in training", attributes=("net.running",)), also("1 tensor", idle=("net.other",))],
)
def _(lost=("net.running",), idle=(), attributes=()):
    models = ModelFacts(layouts=(layout(lost_state=lost),), probes=(probe(idle_state=idle),))
    return models, SavedStateFacts(lost_attributes=attributes)


@rule(
    "state-lost-on-reload",
    "1 number changed in training, in no state_dict: net.calls",
    "net.calls",
    spared=[but(counters=())],
    also=[
        also("1 tensor drawn at random when the model was built", at="net.table", counters=(), tables=("net.table",))
    ],
)
def _(counters=("net.calls",), tables=()):
    return ModelFacts(probes=(probe(counters=counters, drawn_tables=tables),))


@rule(
    "state-lost-on-reload",
    "1 attribute changed in training, in no state_dict: net.history",
    "net.history",
    spared=[but(attributes=())],
)
def _(attributes=("net.history",)):
    return SavedStateFacts(lost_attributes=attributes)


@rule(
    "state-lost-on-reload",
    "2 of 8 samples changed when they were read again with the same random numbers",
    "the data set",
    spared=[but(unstable=0), but(changed_by_reading="pixels")],
)
def _(unstable=2, changed_by_reading=""):
    read = SampleFacts(samples=(samples(changed_by_reading=changed_by_reading),))
    return read, SavedStateFacts(unstable_samples=(unstable, 8))
