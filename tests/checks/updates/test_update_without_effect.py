"""update-without-effect: the buggy and the fixed program."""

from tests.checks.programs import mlp, plain, sgd, twin


@twin("update-without-effect")
def _(buggy):
    model = mlp()
    return plain(model, optimizer=sgd(model, lr=1e-14 if buggy else 0.1))
