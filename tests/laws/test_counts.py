"""What `make check` prints is counted, on code that a reader can count by eye."""

from __future__ import annotations

import ast
import inspect

import fedtempo as ft
from tests import counts

CODE = """
def _once(): pass
def _twice(): pass
def shown(a, b, c, d, e, f, *, g): return _once() + _twice() + _twice()
"""


def test_private_functions_with_one_caller_are_counted() -> None:
    path = counts.SOURCE / "study" / "x.py"
    assert counts.called_once({path: ast.parse(CODE)}) == 1
    assert [len(counts.parameters(one)) for one in counts.functions(ast.parse(CODE))] == [0, 0, 7]
    assert (counts.ring(path), counts.ring(counts.SOURCE / "errors.py")) == ("lab", "core")


def test_a_list_of_settings_names_most_of_them() -> None:
    names = [*inspect.signature(ft.run).parameters][: counts.LISTED]
    path = counts.SOURCE / "x.py"
    fields = "class Many:\n" + "".join(f"    {name}: int\n" for name in names)
    few = "class Few:\n" + "".join(f"    {name}: int\n" for name in names[1:])
    assert counts.lists_of_settings({path: ast.parse(fields + few)}) == ["x.py:Many"]
    assert counts.heirs({path: ast.parse("class A(RunHistory): pass\nclass B(A): pass")}, "RunHistory") == ["A"]
    assert counts.opening({path: ast.parse("Pool(1)")}, "Pool") == ["x.py"]


def test_a_plain_round_enters_the_round_and_no_study() -> None:
    files, functions = counts.on_the_way()
    assert 5 < files < functions < 400
