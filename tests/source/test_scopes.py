"""The nodes of a scope: those of functions inside are not its own, and its source is walked once."""

import ast

from surefoot.source.scopes import own_nodes

SOURCE = """
a = 1
def f():
    b = 2
for c in (3, 4):
    d = lambda e: e + 5
"""


def numbers(scope: ast.AST) -> set[int]:
    return {each.value for each in own_nodes(scope) if isinstance(each, ast.Constant)}


def test_functions_and_lambdas_keep_their_own_nodes():
    tree = ast.parse(SOURCE)
    assert numbers(tree) == {1, 3, 4}
    assert numbers(tree.body[1]) == {2}


def test_a_scope_is_walked_once_however_often_it_is_searched(monkeypatch):
    plain, walked = ast.iter_child_nodes, []

    def counted(node):
        walked.append(node)
        return plain(node)

    monkeypatch.setattr(ast, "iter_child_nodes", counted)
    tree = ast.parse(SOURCE)
    first = list(own_nodes(tree))
    assert walked
    walked.clear()
    assert list(own_nodes(tree)) == first
    assert not walked
