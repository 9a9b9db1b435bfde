"""What is asked of the frames that run is not kept by them."""

import sys
import weakref

import torch

from surefoot.source.frames import variables


def test_a_variable_that_was_asked_for_can_go():
    def loop():
        batch = torch.ones(3)
        ref = weakref.ref(batch)
        assert variables(sys._getframe())["batch"] is batch
        del batch
        return ref()

    assert loop() is None


def test_variables_of_a_module_stay():
    assert variables(sys._getframe())
    names = {"__name__": "loop"}
    exec("import sys\nfrom surefoot.source.frames import variables\nfound = variables(sys._getframe())", names)
    assert names["found"]["__name__"] == "loop"
    assert names["__name__"] == "loop"
