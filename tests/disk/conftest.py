"""Fixtures: a machine whose disk fails when it is told to."""

import pytest

from tests.disk.machine import Machine, compiler


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory):
    if compiler() is None:
        pytest.skip("the disk's faults are made by a shim in C, and there is no compiler for Linux here")
    made = Machine(tmp_path_factory.mktemp("machine"))
    yield made
    made.close()
