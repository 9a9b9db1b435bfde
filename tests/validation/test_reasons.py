"""Reasons of a failed row: they name no place of the machine."""

import socket

import pytest

from surefoot.validation.reasons import reason_of_end, without_places


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cannot open /home/me/data/train.bin: gone", "cannot open train.bin: gone"),
        ("cannot open 'C:\\Users\\me\\x.txt'", "cannot open 'x.txt'"),
        ("a/b of 3 and https", "a/b of 3 and https"),
        ("\n  first \nsecond", "first"),
        (f"no route to {socket.gethostname()}.", "no route to this host."),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_a_reason_names_no_place(text, said):
    assert without_places(text) == said


def test_the_end_of_a_process_is_told():
    assert reason_of_end(3, "a\nlast /srv/x/y.py line\n\n") == "the process ended with 3: last y.py line"
    assert reason_of_end(-11, "") == "the process was ended by SIGSEGV"
    assert reason_of_end(1, "") == "the process ended with 1: it said nothing"
