"""torch's functions of memory snapshots take what is given to them. Without a GPU they are not called."""

import inspect

import torch


def test_the_functions_take_these_arguments():
    recorded = inspect.signature(torch.cuda.memory._record_memory_history).parameters
    kinds = {each.kind for each in recorded.values()}
    assert {"enabled", "max_entries", "stacks"} <= set(recorded) or inspect.Parameter.VAR_KEYWORD in kinds
    assert "filename" in inspect.signature(torch.cuda.memory._dump_snapshot).parameters
