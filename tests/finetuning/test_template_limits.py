"""Templates that never end or take all memory are ended, and the error names their line."""

import signal
import sys
import threading
import time

import pytest

from surefoot.checks.text.tokenizers_in_sight import mark_before_answer
from surefoot.errors import DataError
from surefoot.finetuning import template_limits
from surefoot.finetuning.chat import conversation
from surefoot.finetuning.local_tokenizer import read_tokenizer
from surefoot.finetuning.template_limits import limited_template
from tests import tuned_models

TALK = {"messages": [{"role": "user", "content": "two?"}, {"role": "assistant", "content": "two"}]}
LOOP = "{% for a in range(99999) %}\n{% for b in range(99999) %}\n{% endfor %}\n{% endfor %}"
DOUBLED = "{% set ns = namespace(x='xxxxxxxxxx') %}\n{% for a in range(60) %}\n{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
LATER = "{% if messages|length > 1 %}ok{% else %}\n{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
LATER += "{% endfor %}{% endif %}"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(template_limits, "SECONDS", 0.5)


def made_with(template, tmp_path):
    return conversation(TALK, read_tokenizer(str(tuned_models.tokenizer(tmp_path / "model", template))))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (LOOP, r"the chat template runs for more than 0\.5 seconds in its line [12]; correct it"),
        ("\n\n{% generation %}" + LOOP + "{% endgeneration %}", r"runs for more than 0\.5 seconds in its line [34]"),
        (LATER, r"runs for more than 0\.5 seconds in its line 2"),  # only without the answer: a turn is rendered alone
        ("{{ 9**(9**9) }}", r"runs for more than 0\.5 seconds; correct it"),  # jinja computes constants as it compiles
        ("\n{% set x = messages|length %}{{ (x + 7)**(9**9) }}", r"runs for more than 0\.5 seconds in its line 2"),
        ("\n{{ messages[0]['content'] * 10**10 }}", r"takes more than 1\.00 GiB of memory in its line 2"),
        ("{{ 'x' * 10**10 }}", r"takes more than 1\.00 GiB of memory in its line 1"),
        (DOUBLED, r"more than (0\.5 seconds|1\.00 GiB of memory) in its line 3"),
        ("{{ 'x'.ljust(10**10) }}", r"takes more than 1\.00 GiB of memory in its line 1"),
    ],
)
def test_a_template_without_an_end_is_ended_and_its_line_named(template, words, tmp_path):
    with pytest.raises(DataError, match=words):
        made_with(template, tmp_path)


def test_a_template_in_another_thread_is_ended_too(tmp_path):
    tokenizer, found = read_tokenizer(str(tuned_models.tokenizer(tmp_path / "model", LOOP))), []

    def work() -> None:
        try:
            conversation(TALK, tokenizer)
        except DataError as error:
            found.append(str(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert [each.split(" in its")[0] for each in found] == ["the chat template runs for more than 0.5 seconds"]


def test_watching_goes_on_without_a_template_that_never_ends(tmp_path):
    tokenizer = read_tokenizer(str(tuned_models.tokenizer(tmp_path / "model")))
    assert mark_before_answer(tokenizer, tuned_models.TEMPLATE)
    assert mark_before_answer(tokenizer, LOOP) == ""


def never_ends() -> None:
    with limited_template("this"):
        while True:
            time.thread_time()


def test_the_timer_the_trace_and_the_limit_of_memory_are_put_back():
    resource = pytest.importorskip("resource")

    def heard(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGVTALRM, heard), sys.gettrace(), resource.getrlimit(resource.RLIMIT_AS)
    try:
        with pytest.raises(DataError, match="runs for more"):
            never_ends()
        assert signal.getsignal(signal.SIGVTALRM) is heard
        assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
        assert (sys.gettrace(), resource.getrlimit(resource.RLIMIT_AS)) == before[1:]
    finally:
        signal.signal(signal.SIGVTALRM, before[0])
