"""Answers are short, whatever a record holds, and name what matters first."""

import json

from surefoot.integrations.mcp.answers import (
    MOST_BYTES,
    check_answer,
    compare_answer,
    explain_answer,
    look_answer,
    plan_answer,
)
from surefoot.integrations.mcp.commands import record_in
from surefoot.records.codec import to_json
from surefoot.records.compared import PartedAt, Scripts
from surefoot.records.explanation import Place
from surefoot.records.finding import Finding, Findings
from surefoot.records.looked import Form, Looked, LookedModule
from surefoot.records.out_of_memory import Held, LiveTensor, OutOfMemory
from surefoot.records.plan import Fit, Plan, RunCost
from surefoot.records.tally import Account, Tally
from surefoot.records.usage import Peak, Usage

LONG = "so long a text that it is cut " * 50


def findings(count: int, text: str) -> Findings:
    severities = ("info", "warning", "error")
    found = [Finding(f"check-{each}", severities[each % 3], text, "train.py:8", text, text) for each in range(count)]
    return Findings("train.py", (), tuple(found), examined=(text,) * count, not_examined=(text,) * count)


def plan(**more) -> Plan:
    accounts = (Account("memory/parameters/a", 60, "bytes"), Account("memory/parameters/b", 20, "bytes"))
    usage = Usage(Tally((*accounts, Account("memory/inputs", 5, "bytes"))), Peak(85))
    fit = Fit("h100-sxm", 1000, 10, "classic", 500, True)
    cost = RunCost(10, 80, 8, 1.0, 0, 0, 86400.0, 1, 0, None, 192, 300.0, 1.5, None, low=0.5, high=2.0)
    return Plan("own", "", {}, 7, 8, 1, 10, steady=usage, fit=fit, cost=cost, ranks=8, **more)


def test_an_answer_is_short():
    place = Place(LONG, 1, LONG)
    module = LookedModule(LONG, "Linear", (Form((2,), "float32"),) * 40, 1, 1, 1)
    tensor = LiveTensor(9, 2, "activations", LONG, "forward", "", LONG, 0, place)
    parted = PartedAt(LONG, LONG, LONG, LONG, LONG, None, None)
    answers = (
        check_answer(findings(40, LONG)),
        plan_answer(plan(assumptions=(LONG,) * 40, layout=LONG)),
        look_answer(Looked(LONG, 1.0, (module,) * 99, ()), LONG),
        explain_answer(OutOfMemory("E", LONG, largest=(tensor,) * 40, notes=(LONG,) * 9)),
        compare_answer(Scripts(LONG, LONG, 3, 1, "arithmetic", LONG, parted)),
    )
    for answer in answers:
        assert len(json.dumps(json.loads(to_json(answer)))) <= MOST_BYTES


def test_errors_come_first_and_what_is_left_out_is_counted():
    answer = check_answer(findings(40, "short"))
    assert answer.errors == 13
    assert {each.severity for each in answer.findings} == {"error"}
    assert answer.left_out >= 32 + 2 * 32
    few = check_answer(findings(2, "short"))
    assert [each.severity for each in few.findings] == ["warning", "info"]
    assert few.left_out == 0


def test_a_plan_says_what_decides():
    answer = plan_answer(plan())
    assert (answer.fits, answer.device, answer.ranks, answer.memory_bytes) == (True, "h100-sxm", 8, 500)
    assert answer.memory_by_account == {"parameters": 80, "inputs": 5}
    assert answer.days is not None
    assert (answer.days.low, answer.days.expected, answer.days.high) == (0.5, 1.0, 2.0)
    assert answer.dollars is not None
    assert answer.dollars.high == 600


def test_out_of_memory_names_who_holds_it_and_what_fits():
    held = (Held("activations", "a", "forward", 30), Held("activations", "b", "forward", 12), Held("inputs", "", "", 5))
    answer = explain_answer(OutOfMemory("E", "no memory", place=Place("train.py", 8, "loss.backward()"), held=held))
    assert answer.memory_by_account == {"activations": 42, "inputs": 5}
    assert answer.where == "train.py:8 loss.backward()"


def test_the_record_is_found_beside_what_a_script_wrote_to_the_same_descriptor():
    record = to_json({"a": {"b": 1}})
    for printed in (record, f"noise\n{record}\n", f"{{\n not json\n{record}\nat exit {{\n"):
        assert record_in(printed) == {"a": {"b": 1}}
    assert record_in("nothing { here }") is None
    assert record_in("{\n cut") is None
