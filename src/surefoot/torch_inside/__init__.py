"""Torch inside: every private part of torch that surefoot uses, by subject, and the one place that replaces functions.

Nothing outside this package touches a private name of torch; `tests/torch_inside/test_the_door.py` reads the syntax
trees. Each file has a behaviour test of the same name, which says what a new torch changed. All were tried on the
versions that `surefoot.torch_inside.version.TRIED` names.
"""
