"""Patches nest, end in any order, in any thread, and leave what others put on top of them working."""

import inspect
import threading
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.torch_inside.patches import patch, patched


def adding(word: str):
    return lambda plain: lambda *args: [word, *plain(*args)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=30))
def test_any_order_of_beginnings_and_ends(moves: list[tuple[bool, int]]):
    """After every move the place calls the layers that are on, newest first; at the end it is as it was."""

    def plain() -> list[str]:
        return []

    owner, on = SimpleNamespace(f=plain), []
    for number, (begins, which) in enumerate(moves):
        if begins:
            on.append((str(number), patch(owner, "f", adding(str(number)))))
        elif on:
            on.pop(which % len(on))[1]()
        assert owner.f() == [name for name, _ in reversed(on)]
    for _, restore in on:
        restore()
    assert owner.f is plain


class Base:
    def method(self, x):
        return [x]

    @classmethod
    def of_class(cls, x):
        return [cls, x]

    @staticmethod
    def alone(x):
        return [x]


class Child(Base):
    pass


@pytest.mark.parametrize("owner", [Base, Child])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("method", lambda kind: kind().method(1)),
        ("of_class", lambda kind: kind.of_class(1)),
        ("alone", lambda kind: kind.alone(1)),
    ],
)
def test_methods_of_every_kind(owner: type, name: str, call):
    before, held, expected = inspect.getattr_static(owner, name), name in vars(owner), call(owner)
    with patched(owner, name, adding("seen")):
        assert call(owner) == ["seen", *expected]
    assert inspect.getattr_static(owner, name) is before
    assert (name in vars(owner)) == held


def test_the_signature_stays_readable():
    with patched(torch.autograd, "backward", lambda plain: lambda *args, **kwargs: plain(*args, **kwargs)):
        assert "retain_graph" in inspect.signature(torch.autograd.backward).parameters


def test_what_others_put_on_top_still_reaches_the_plain_function():
    owner = SimpleNamespace(f=lambda: ["plain"])
    restore = patch(owner, "f", adding("ours"))
    below = owner.f
    owner.f = lambda: ["theirs", *below()]
    assert owner.f() == ["theirs", "ours", "plain"]
    with patched(owner, "f", adding("later")):
        assert owner.f() == ["later", "theirs", "ours", "plain"]
    restore()
    assert owner.f() == ["theirs", "plain"]
    with patched(owner, "f", adding("again")):
        assert owner.f() == ["again", "theirs", "plain"]


def test_one_that_ends_twice_ends_once():
    owner = SimpleNamespace(f=list)
    first, second = patch(owner, "f", adding("1")), patch(owner, "f", adding("2"))
    first()
    first()
    assert owner.f() == ["2"]
    second()


def test_threads_that_begin_and_end_at_once_leave_nothing():
    def plain() -> list[str]:
        return []

    owner, wrong = SimpleNamespace(f=plain), []

    def work(name: str) -> None:
        for _ in range(300):
            with patched(owner, "f", adding(name)):
                if name not in owner.f():
                    wrong.append(name)

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    assert owner.f is plain


def test_a_function_that_torch_inherits_from_c_is_given_back():
    held = "resize_" in vars(torch.UntypedStorage)
    sizes = []
    make = lambda plain: lambda storage, size: (sizes.append(size), plain(storage, size))[1]  # noqa: E731
    with patched(torch.UntypedStorage, "resize_", make):
        torch.UntypedStorage(4).resize_(8)
    assert sizes == [8]
    assert ("resize_" in vars(torch.UntypedStorage)) == held


def test_a_class_method_that_is_written_in_c_is_followed():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

    seen = []
    make = lambda plain: lambda kind, *args: (seen.append(kind), plain(kind, *args))[1]  # noqa: E731
    with patched(torch.autograd.Function, "apply", make), patched(Twice, "apply", make):
        assert Twice.apply(torch.ones(1)).item() == 2
    assert seen == [Twice, Twice]
    assert "apply" not in vars(Twice)
