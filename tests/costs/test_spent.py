"""Where the time of a trace went, on traces made up by hand."""

from hypothesis import given
from hypothesis import strategies as st

from surefoot.costs.trace_time import MODULE, OUTSIDE, PHASE, PYTHON, STEP, spent


def event(name: str, begin: float, end: float, *, cat: str = "cpu_op", tid: int = 1, **args):
    return {"ph": "X", "name": name, "cat": cat, "tid": tid, "ts": begin, "dur": end - begin, "args": args}


def mark(name: str, begin: float, end: float | None = None):
    return event(name, begin, begin if end is None else end, cat="user_annotation")


def test_every_moment_is_booked_once_to_the_innermost_operator_and_module():
    events = [
        mark(STEP, 0, 100),
        mark(PHASE + "0", 0),
        mark(MODULE + "block", 10, 60),
        mark(MODULE + "block.linear", 20, 50),
        event("aten::linear", 25, 45, **{"Sequence number": 7, "Fwd thread id": 0}),
        event("aten::addmm", 30, 40, **{"Sequence number": 8, "Fwd thread id": 0}),
        mark(PHASE + "1", 60),
        event(
            "autograd::engine::evaluate_function: AddmmBackward0", 70, 80, **{"Sequence number": 8, "Fwd thread id": 1}
        ),
        event("aten::mm", 72, 78),
        event("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 80, 85),
        event("aten::elsewhere", 0, 100, tid=2),
        event("aten::after", 100, 120),
    ]
    tally = spent(events, {"0": "forward", "1": "backward"})
    found = {account.name: round(account.amount * 1e6, 6) for account in tally.accounts}
    assert found == {
        f"time/forward/{OUTSIDE}/{PYTHON}": 10,
        f"time/forward/block/{PYTHON}": 20,
        f"time/forward/block.linear/{PYTHON}": 10,
        "time/forward/block.linear/aten::linear": 10,
        "time/forward/block.linear/aten::addmm": 10,
        f"time/backward/{OUTSIDE}/{PYTHON}": 25,
        "time/backward/block.linear/AddmmBackward0": 4,
        "time/backward/block.linear/aten::mm": 6,
        "time/backward/block.linear/torch::autograd::AccumulateGrad": 5,
    }


def test_what_the_model_itself_does_is_outside_modules_in_backward_too():
    events = [
        mark(STEP, 0, 30),
        mark(PHASE + "0", 0),
        mark(MODULE, 0, 10),
        event("aten::add", 0, 10, **{"Sequence number": 3, "Fwd thread id": 0}),
        event("AddBackward0", 10, 30, **{"Sequence number": 3, "Fwd thread id": 1}),
    ]
    assert set(spent(events, {"0": "all"}).under("time/all")) == {OUTSIDE}


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(1, 200), st.booleans()), max_size=40))
def test_whatever_ran_a_step_adds_up_to_itself(spans):
    events = [mark(STEP, 0, 1000), mark(PHASE + "0", 0)]
    for begin, lasting, module in spans:
        name = MODULE + f"m{begin % 3}" if module else "aten::op"
        events.append(event(name, begin, begin + lasting, cat="user_annotation" if module else "cpu_op"))
    assert round(spent(events, {"0": "forward"}).total("time") * 1e6, 6) == 1000
