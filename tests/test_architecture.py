"""The plan of the house, held against the code: who may import whom, and what is in which file."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gan"

LAYERS = [
    # Lowest first. A module imports modules of lower layers only. A name stands for a file or a
    # folder of gan/; inside a folder, everything may import everything.
    {"errors", "schedules", "serial", "signals"},
    {"data_config", "network_config", "words"},
    {"config"},
    {"flags", "presets"},
    {"augment", "chance", "freeze", "losses", "networks", "optimizers", "penalties"}
    | {"regularizers", "warp"},
    {"accelerators", "progress"},
    {"card", "checkpoint", "choice", "data", "ema", "export", "gallery", "hub", "metrics", "player"}
    | {"portable", "power_ema", "sampling", "stopwatch", "text", "tracking"},
    {"steps"},
    {"parts"},
    {"run", "text_run"},
    {"gauges", "guard", "health", "state"},
    {"comparison", "results"},
    {"report", "text_report"},
    {"loop", "text_classification"},
    {"speed"},
    {"commands"},
    {"__init__", "cli"},
    {"__main__"},
]
LISTED = {
    *((name, "sampling") for name in ("export", "gallery", "metrics", "portable")),
    *(("export", name) for name in ("checkpoint", "hub")),
    ("augment", "warp"),
    ("penalties", "regularizers"),
    ("regularizers", "augment"),
    ("power_ema", "checkpoint"),
    ("power_ema", "ema"),
}
"""The imports inside one layer that the plan allows."""

NO_TORCH = {"errors", "schedules", "serial", "signals", "words"} | {
    *("data_config", "network_config", "config", "presets")
}
"""Standard library and yaml only."""
TORCH_ONLY = next(names for names in LAYERS if "losses" in names)
"""Pure pieces: standard library and torch only."""
LIGHT = {"__init__", "cli", "commands", "__main__"}
"""Their import must be fast, so all that needs torch is imported inside a function."""

FORBIDDEN_NAMES = {"utils", "common", "helpers"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    """Return the file or folder of gan/ that a dotted module name lives in."""
    return module.partition(".")[2].partition(".")[0] or "__init__"


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer_of(name: str) -> int:
    for number, names in enumerate(LAYERS):
        if name in names:
            return number
    pytest.fail(f"gan/{name} is in no layer: add it to LAYERS in {Path(__file__).name}")


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def nodes(tree: ast.AST, in_function: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every node that runs, and whether only a call runs it."""
    for node in ast.iter_child_nodes(tree):
        yield node, in_function
        if isinstance(node, ast.If) and is_type_checking(node):
            children: ast.AST = ast.Module(node.orelse, [])
        else:
            children = node
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from nodes(children, in_function or function)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every module that a file imports, as a dotted name, and whether inside a function."""
    for node, in_function in nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, in_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports out, from gan. ..."
            assert node.module is not None
            if node.module != "gan":
                yield node.module, in_function
            # `from gan import steps` is that module, `from gan import fit` the public names.
            for alias in node.names if node.module == "gan" else ():
                known = any(alias.name in names for names in LAYERS)
                yield f"gan.{alias.name}" if known else "gan", in_function


def each_module(argument: str = "path") -> pytest.MarkDecorator:
    names = [str(path.relative_to(ROOT)) for path in MODULES]
    return pytest.mark.parametrize(argument, MODULES, ids=names)


@each_module()
def test_imports_point_downward(path):
    mine = room(path)
    for module, in_function in imports(path):
        if not module.startswith("gan"):
            continue
        theirs = room_of(module)
        if theirs == mine or (mine, theirs) in LISTED:
            continue
        assert layer_of(theirs) < layer_of(mine) or (mine, theirs) == ("cli", "__init__"), (
            f"gan/{mine} imports {module}, which is not below it"
        )
        if mine in LIGHT and not in_function:
            assert theirs in NO_TORCH | LIGHT, f"gan/{mine} imports {module} outside a function"


@each_module()
def test_only_declared_dependencies_are_imported(path):
    core, extras = declared()
    for module, in_function in imports(path):
        top = module.partition(".")[0]
        if top == "gan" or top in sys.stdlib_module_names:
            continue
        if room(path) in NO_TORCH:
            allowed = {"pyyaml"}
        elif room(path) in TORCH_ONLY:
            allowed = {"torch"}
        else:
            allowed = core | extras if in_function else core
        distributions = {normal(name) for name in installed().get(top, [top])}
        assert distributions & allowed, f"{path.name} imports {module}, allowed: {sorted(allowed)}"


installed = functools.cache(packages_distributions)


def declared() -> tuple[set[str], set[str]]:
    """Names of the distributions that pyproject.toml asks for: always, and in extras."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    core, _, rest = text.partition("\ndependencies = [")[2].partition("\n]")
    extras = rest.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    names = (
        {normal(name) for name in re.findall(r'^\s*"([\w.-]+)', part, re.M)}
        for part in (core, extras)
    )
    return next(names), next(names)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_declared_dependencies_are_read():
    core, extras = declared()
    assert {"torch", "accelerate", "tyro"} <= core
    assert {"pytest", "ruff"} <= extras
    assert not core & extras


@each_module()
def test_only_the_command_line_prints(path):
    if room(path) in ("cli", "commands"):
        return
    for node, _ in nodes(ast.parse(path.read_text(encoding="utf-8"))):
        call = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        assert call not in {"print", "sys.exit", "exit", "os._exit"} or (
            (room(path), call) == ("__main__", "sys.exit")
        ), f"{path.name}:{node.lineno} calls {call}, which is the command line's to do"


@each_module()
def test_modules_are_short_and_named_for_what_they_hold(path):
    assert path.stem not in FORBIDDEN_NAMES
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 400, f"{path.name} has {lines} lines; split it"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_and_version_leave_torch_out(arguments):
    probe = (
        "import sys\n"
        "from gan.cli import main\n"
        f"assert main({arguments!r}) == 0\n"
        "heavy = {'torch', 'accelerate', 'numpy', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_one_network_needs_nothing_of_two():
    probe = (
        "import sys, gan.text_classification\n"
        "sys.exit(str({'gan.run', 'gan.losses', 'gan.penalties', 'gan.steps'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == "set()\n"


# --- the tests above can fail --------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write one module of an otherwise empty gan/."""
    monkeypatch.setattr("test_architecture.PACKAGE", tmp_path)

    def write(name: str, text: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_an_import_upward_is_found_also_inside_a_function(module):
    path = module("losses", "def late():\n    from gan.player import Player\n    return Player")
    with pytest.raises(AssertionError, match=r"gan/losses imports gan\.player, which is not below"):
        test_imports_point_downward(path)


def test_an_import_within_a_layer_is_found_unless_it_is_listed(module):
    test_imports_point_downward(module("metrics", "from gan.sampling import sample"))
    with pytest.raises(AssertionError, match="which is not below"):
        test_imports_point_downward(module("sampling", "from gan.metrics import fid"))


def test_an_unknown_module_is_found(module):
    with pytest.raises(pytest.fail.Exception, match="gan/attic is in no layer"):
        test_imports_point_downward(module("attic", "from gan import errors"))


def test_an_import_for_types_only_is_no_import(module):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gan.loop import train"
    test_imports_point_downward(module("losses", text))


def test_a_heavy_import_of_the_command_line_is_found(module):
    test_imports_point_downward(module("cli", "def run():\n    from gan.loop import train"))
    with pytest.raises(AssertionError, match="outside a function"):
        test_imports_point_downward(module("cli", "from gan.loop import train"))


@pytest.mark.parametrize(
    ("name", "text"),
    [("config", "import torch"), ("losses", "import accelerate"), ("loop", "import no_such_thing")],
)
def test_an_undeclared_dependency_is_found(module, name, text):
    with pytest.raises(AssertionError, match="allowed: "):
        test_only_declared_dependencies_are_imported(module(name, text))


def test_a_print_is_found(module):
    with pytest.raises(AssertionError, match=r"loop\.py:2 calls print"):
        test_only_the_command_line_prints(module("loop", "\nprint('hello')"))


def test_a_long_module_is_found(module):
    with pytest.raises(AssertionError, match="has 401 lines"):
        test_modules_are_short_and_named_for_what_they_hold(module("loop", "\n" * 401))
