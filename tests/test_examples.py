"""The examples run, say the same thing three times, and use public names only."""

import ast
import difflib
import importlib.util
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from conftest import reset_accelerate
from PIL import Image
from toys import weights

import gan

EXAMPLES = Path(__file__).parents[1] / "examples"
THREE = ("gan_pure_pytorch", "gan_accelerate", "gan_toolkit")


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(name, steps=12):
    """Weights of both networks and of the average after some steps of an example."""
    reset_accelerate()
    module = example(name)
    torch.manual_seed(0)
    networks = module.build_generator(), module.build_discriminator()
    average = module.train(*networks, module.digits(), steps)
    return weights(*networks, average)


@pytest.fixture
def on_the_cpu(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


def test_the_three_end_with_the_same_weights(on_the_cpu):
    plain, bare, toolkit = map(trained, THREE)
    assert torch.equal(bare, plain)
    assert torch.equal(toolkit, plain)
    assert not torch.equal(trained(THREE[0], 11), plain)


def test_bare_accelerate_and_the_toolkit_end_alike_in_two_processes(two_processes):
    ranks = two_processes(lambda: [trained(name, 8) for name in THREE[1:]])
    (bare, toolkit), (other_bare, other_toolkit) = ranks
    assert torch.equal(toolkit, bare)
    assert torch.equal(other_toolkit, other_bare)
    assert torch.equal(toolkit, other_toolkit)


def test_the_toolkits_example_also_runs_in_bf16(on_the_cpu, monkeypatch):
    exact = trained("gan_toolkit", 5)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    rough = trained("gan_toolkit", 5)
    assert 0 < (rough - exact).abs().max() < 0.02


def test_the_three_print_the_same_losses(on_the_cpu, capsys):
    printed = set()
    for name in THREE:
        reset_accelerate()
        example(name).main(["--steps", "100"])
        printed.add(capsys.readouterr().out)
    (line,) = printed
    assert re.fullmatch(r"step  100: discriminator 0\.\d{3}, generator 0\.\d{3}\n", line)


def test_the_three_are_made_to_be_read_side_by_side():
    texts = {name: (EXAMPLES / f"{name}.py").read_text() for name in THREE}
    outlines = [outline(text) for text in texts.values()]
    for functions, constants in outlines:
        assert [name for name in functions if name != "r1_penalty"] == [
            "build_generator",
            "build_discriminator",
            "digits",
            "endless",
            "train",
            "main",
        ]
        assert constants == outlines[0][1]
    plain, bare, toolkit = (text.splitlines() for text in texts.values())
    assert difflib.SequenceMatcher(None, plain, bare).ratio() > 0.7
    assert difflib.SequenceMatcher(None, plain, toolkit).ratio() > 0.65
    assert len(toolkit) < len(plain) < len(bare)


def outline(text):
    """Names of the functions, and the module's constants, in order."""
    body = ast.parse(text).body
    functions = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    return functions, [ast.unparse(node) for node in body if isinstance(node, ast.Assign)]


def test_the_minimal_loop(on_the_cpu, monkeypatch, tmp_path, capsys):
    script = EXAMPLES / "minimal_loop.py"
    assert len(script.read_text().splitlines()) < 60
    out = tmp_path / "digits.png"
    monkeypatch.setattr(sys, "argv", [str(script), "--steps", "100", "--out", str(out)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.startswith("100 ")
    with Image.open(out) as picture:
        assert picture.size == (8 * 10 + 2, 8 * 10 + 2)


@pytest.mark.parametrize("name", [*THREE, "minimal_loop"])
def test_they_use_public_names_only(name):
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "gan":
            assert node.module == "gan"
            used |= {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            assert not [a.name for a in node.names if a.name.startswith("gan.")]
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "gan":
            used.add(node.attr)
    assert used <= set(gan.__all__)
    assert bool(used) == (name in ("gan_toolkit", "minimal_loop"))
