"""Notes on tensors go by who they are, and keep none alive."""

import weakref

import torch

from surefoot.checks.engine.weak_notes import WeakNotes


def test_a_note_is_of_one_tensor_and_keeps_it_not_alive():
    marks, tensor = WeakNotes(), torch.ones(2)
    marks[tensor] = "seen"
    assert marks.get(tensor) == "seen"
    assert tensor.clone() not in marks
    gone = weakref.ref(tensor)
    del tensor
    assert gone() is None
    assert marks.notes() == ["seen"]


def test_what_takes_the_place_of_one_that_is_gone_has_no_note():
    marks = WeakNotes()
    for _ in range(1000):
        tensor = torch.ones(2)
        assert tensor not in marks
        assert marks.get(tensor) is None
        marks[tensor] = "seen"
        del tensor
    assert len(marks) < 1000, "no tensor took another's place"


def test_a_note_can_be_forgotten():
    marks, tensor = WeakNotes(), torch.ones(2)
    marks.put([tensor, tensor], 1)
    marks.forget(tensor)
    marks.forget(tensor)
    assert tensor not in marks
