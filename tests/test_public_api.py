"""The public names: complete, sorted, lazy, documented."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import inspect
import itertools
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gan

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gan"
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Reference")


def names_for_type_checkers() -> list[str]:
    """What gan/__init__.py shows to a type checker, which cannot follow lazy names."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    return [alias.asname for block in blocks for line in block.body for alias in line.names]


def test_all_is_sorted_and_complete():
    assert sorted([*names_for_type_checkers(), "__version__"]) == gan.__all__
    assert dir(gan) == gan.__all__


@pytest.mark.parametrize("name", gan.__all__)
def test_every_name_resolves_to_what_lives_where_it_says(name):
    value = getattr(gan, name)
    assert getattr(gan, name) is value
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__.startswith("gan.")
        assert getattr(importlib.import_module(value.__module__), value.__name__) is value


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'gan' has no attribute 'nonsense'"):
        _ = gan.nonsense


@pytest.mark.parametrize(
    "statement",
    ["import gan", "import gan; gan.Config; gan.preset_config('digits')", "import gan; dir(gan)"],
)
def test_what_needs_no_torch_does_not_import_it(statement):
    probe = f"import sys\n{statement}\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], cwd=ROOT).returncode == 0


# --- docstrings ----------------------------------------------------------------------------------


def public_callables() -> Iterator[tuple[str, Any]]:
    """Public functions, classes, and the public methods that a class of ours defines itself."""
    for name in gan.__all__:
        value = getattr(gan, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            yield name, value
            for attribute, member in vars(value).items():
                function = getattr(member, "__func__", member)
                if inspect.isfunction(function) and not attribute.startswith("_"):
                    yield f"{name}.{attribute}", function


def sections(docstring: str) -> dict[str, str]:
    """The text of each Google section, with a first one called ''."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):", docstring, flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def parameters(function: Callable[..., Any]) -> list[str]:
    names = inspect.signature(function).parameters
    return [name for name in names if name not in ("self", "cls")]


def undocumented(text: str, names: list[str]) -> list[str]:
    """Names without an entry of their own, as in `    name: ...` or `    name, other: ...`."""
    entries = re.findall(r"^\s+\*{0,2}([\w, *]+):", text, flags=re.M)
    documented = {name.strip(" *") for entry in entries for name in entry.split(",")}
    return [name for name in names if name not in documented]


def statements(function: Callable[..., Any]) -> Iterator[ast.AST]:
    """What a function does itself, without the functions inside it."""
    waiting: list[ast.AST] = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0].body
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


def problems_of_function(function: Callable[..., Any]) -> list[str]:
    text = inspect.getdoc(function) or ""
    found = sections(text)
    result = [
        f"no entry for {name}" for name in undocumented(found.get("Args", ""), parameters(function))
    ]
    nodes = list(statements(function))
    yields = any(isinstance(node, ast.Yield) and node.value is not None for node in nodes)
    returns = any(isinstance(node, ast.Return) and node.value is not None for node in nodes)
    if yields and "Yields" not in found and parameters(function):
        result.append("no Yields")
    # Without arguments the first sentence says what comes out.
    if returns and not yields and "Returns" not in found and parameters(function):
        result.append("no Returns")
    for node in nodes:
        if isinstance(node, ast.Raise) and node.exc is not None:
            name = ast.unparse(node.exc).partition("(")[0]
            if name[0].isupper() and name not in found.get("Raises", ""):
                result.append(f"no Raises for {name}")
    return result if text else ["no docstring"]


def problems_of_class(kind: type) -> list[str]:
    init = vars(kind).get("__init__")
    text = "\n".join(inspect.getdoc(each) or "" for each in (kind, init) if each)
    if "__doc__" not in vars(kind) or not text:
        return ["no docstring"]
    if dataclasses.is_dataclass(kind):
        below = documented_below(kind)
        names = [n for n in kind.__annotations__ if n not in below and not n.startswith("_")]
    else:
        names = parameters(init) if init else []
    return [f"no entry for {name}" for name in undocumented(text, names)]


def documented_below(kind: type) -> set[str]:
    """Fields with a string of their own below them, which is also the help of their flag."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    return {
        field.target.id
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


CALLABLES = list(public_callables())


@pytest.mark.parametrize(("name", "value"), CALLABLES, ids=[name for name, _ in CALLABLES])
def test_docstrings_say_what_goes_in_and_what_comes_out(name, value):
    check = problems_of_class if inspect.isclass(value) else problems_of_function
    assert check(value) == [], name


def incomplete(first: int, second: int) -> int:
    """Add.

    Args:
        first: a number.
    """
    if second:
        raise ValueError("no")
    return first


def test_gaps_in_a_docstring_are_found():
    assert problems_of_function(incomplete) == [
        "no entry for second",
        "no Returns",
        "no Raises for ValueError",
    ]
    assert problems_of_function(test_gaps_in_a_docstring_are_found) == ["no docstring"]


# --- doctests ------------------------------------------------------------------------------------


def modules() -> list[str]:
    paths = (path.relative_to(ROOT).with_suffix("") for path in sorted(PACKAGE.rglob("*.py")))
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_are_true(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(importlib.import_module(name)).failed == 0
