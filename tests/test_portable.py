"""Generators for other programs make the same pictures."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gan.errors import GanError
from gan.networks import build_generator
from gan.portable import export_generator
from gan.sampling import sample


@pytest.fixture
def requires_onnx() -> None:
    for name in ("onnxscript", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs: {name} (pip install 'gan-toolkit[export]')")


@pytest.mark.slow
def test_onnx_makes_the_same_pictures(tmp_path: Path, requires_onnx: None) -> None:
    from onnxruntime import InferenceSession

    generator = build_generator("mlp", (3, 8, 8), z_dim=8, hidden=(8,), num_classes=3).train()
    path = tmp_path / "new" / "generator.onnx"
    assert export_generator(generator, path) < 1e-5
    assert generator.training
    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [(each.name, each.shape[1:]) for each in session.get_inputs()] == [
        ("z", [8]),
        ("labels", []),
    ]
    assert [path.name for path in path.parent.iterdir()] == ["generator.onnx"]


@pytest.mark.parametrize("options", [{}, {"num_classes": 3}])
def test_torchscript_makes_the_same_pictures(tmp_path: Path, options: dict[str, Any]) -> None:
    generator = build_generator("mlp", (1, 4, 4), z_dim=8, hidden=(8,), **options)
    path = tmp_path / "generator.pt"
    assert export_generator(generator, path) < 1e-5
    from gan.sampling import labels_for, latents

    inputs = [latents(range(7), 8), *([labels_for(range(7), 3)] if options else [])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = torch.jit.load(str(path))(*inputs)
    torch.testing.assert_close(images, sample(generator, range(7)))


class Odd(nn.Module):
    """A generator that a tracer takes for something else."""

    z_dim, num_classes, shape = 3, 0, (1, 2, 2)

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.weight, self.kind = nn.Parameter(torch.ones(4)), kind

    def forward(self, z: Tensor) -> Tensor:
        if self.kind == "differs":
            z = z if len(z) % 2 else 2 * z  # the choice is baked in
        if self.kind == "fails":
            z = z[: len(z)] + torch.zeros(len(z), 1)
        return (z[:, :1] * self.weight).view(-1, 1, 2, 2)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("differs", "generator.pt: its pictures differ by "),
        ("fails", "generator.pt: this generator cannot be expressed so: "),
    ],
)
def test_a_file_that_makes_other_pictures_is_not_kept(
    tmp_path: Path, kind: str, message: str
) -> None:
    with pytest.raises(GanError) as caught:
        export_generator(Odd(kind), tmp_path / "generator.pt")
    assert str(caught.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_another_ending(tmp_path: Path) -> None:
    with pytest.raises(GanError) as caught:
        export_generator(Odd(""), tmp_path / "generator.bin")
    expected = (
        f"{tmp_path}/generator.bin: give a file that ends in .onnx, or in .pt for TorchScript"
    )
    assert str(caught.value) == expected


def test_onnx_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(GanError) as caught:
        export_generator(Odd(""), tmp_path / "generator.onnx")
    assert str(caught.value) == (
        "the format onnx needs the package onnxruntime: pip install 'gan-toolkit[export]'"
    )
    assert list(tmp_path.iterdir()) == []
