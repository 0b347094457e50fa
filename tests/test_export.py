"""A generator goes out and comes back, and nothing else passes for one."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from gan.errors import CheckpointError
from gan.export import generator_config, load_generator, save_generator
from gan.networks import build_generator
from gan.sampling import sample

OPTIONS: dict[str, Any] = {"z_dim": 5, "hidden": (8, 16), "num_classes": 3}
SHAPE = (1, 4, 4)


@pytest.fixture
def generator() -> nn.Module:
    generator = build_generator("mlp", SHAPE, **OPTIONS)
    generator(torch.randn(32, 5), torch.zeros(32, dtype=torch.int64))  # moves the batch norm
    return generator


@pytest.fixture
def folder(tmp_path: Path, generator: nn.Module) -> Path:
    folder = tmp_path / "run" / "generator"
    extra = {"class_names": ["a", "b", "c"], "step": 7}
    save_generator(folder, generator, family="mlp", shape=SHAPE, options=OPTIONS, extra=extra)
    return folder


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def problem(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_generator(path)
    return str(caught.value)


# --- out and back --------------------------------------------------------------------------------


def test_the_same_images_come_back(folder: Path, generator: nn.Module) -> None:
    loaded = load_generator(folder)
    assert torch.equal(sample(loaded, range(10)), sample(generator, range(10)))
    assert not any(module.training for module in loaded.modules())
    assert (loaded.z_dim, loaded.num_classes, loaded.shape) == (5, 3, SHAPE)


def test_a_run_folder_leads_to_its_generator(folder: Path, generator: nn.Module) -> None:
    loaded = load_generator(str(folder.parent))
    assert torch.equal(sample(loaded, range(3)), sample(generator, range(3)))


def test_what_is_written(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    config = generator_config(folder)
    assert len(config.pop("sha256")) == 64
    assert config == {
        "kind": "gan-toolkit generator",
        "version": 1,
        "family": "mlp",
        "shape": [1, 4, 4],
        "options": {"z_dim": 5, "hidden": [8, 16], "num_classes": 3},
        "value_range": [-1, 1],
        "class_names": ["a", "b", "c"],
        "step": 7,
    }


def test_writing_again_replaces_and_keeps_other_files(folder: Path, generator: nn.Module) -> None:
    (folder / "README.md").write_text("mine")
    nn.init.zeros_(generator.layers[-3].weight)
    save_generator(folder, generator, family="mlp", shape=SHAPE, options=OPTIONS)
    assert torch.equal(sample(load_generator(folder), [1]), sample(generator, [1]))
    assert (folder / "README.md").read_text() == "mine"
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("kinds", ["c", "m", "cm", "mc", "mcm"])
def test_wrappers_leave_no_trace(tmp_path: Path, generator: nn.Module, kinds: str) -> None:
    class Parallel(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    expected = sample(generator, range(3))
    wrapped = generator
    for kind in kinds:
        wrapped = torch.compile(wrapped, backend="eager") if kind == "c" else Parallel(wrapped)
    save_generator(tmp_path, wrapped, family="mlp", shape=SHAPE, options=OPTIONS)
    assert torch.equal(sample(load_generator(tmp_path), range(3)), expected)
    assert not any("module" in name for name in load_file(tmp_path / "model.safetensors"))


def test_a_compiled_part_leaves_no_trace(tmp_path: Path, generator: nn.Module) -> None:
    expected = sample(generator, range(3))
    generator.layers[0] = torch.compile(generator.layers[0], backend="eager")
    save_generator(tmp_path, generator, family="mlp", shape=SHAPE, options=OPTIONS)
    assert torch.equal(sample(load_generator(tmp_path), range(3)), expected)


def test_random_numbers_go_on_as_if_nothing_had_happened(
    folder: Path, generator: nn.Module
) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    save_generator(folder, load_generator(folder), family="mlp", shape=SHAPE, options=OPTIONS)
    assert torch.equal(torch.rand(3), expected)


def test_loading_needs_nothing_else(folder: Path, tmp_path: Path, generator: nn.Module) -> None:
    code = (
        "import sys, torch, gan; from gan.sampling import sample; "
        "torch.set_num_threads(1); "
        f"torch.save(sample(gan.load_generator({str(folder)!r}), range(3)), 'images.pt')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    images = torch.load(tmp_path / "images.pt", weights_only=True)
    assert torch.equal(images, sample(generator, range(3)))


# --- what is refused -----------------------------------------------------------------------------


def test_weights_of_another_generator_are_not_written(tmp_path: Path, generator: nn.Module) -> None:
    options = OPTIONS | {"z_dim": 6}
    with pytest.raises(CheckpointError) as caught:
        save_generator(tmp_path / "new", generator, family="mlp", shape=SHAPE, options=options)
    assert str(caught.value) == (
        "the generator to export does not fit this network (1 tensors differ): "
        "layers.0.weight: (8, 8) there, (8, 9) here"
    )
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path, generator: nn.Module) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError) as caught:
        save_generator(tmp_path / "file", generator, family="mlp", shape=SHAPE, options=OPTIONS)
    assert str(caught.value) == f"cannot write {tmp_path / 'file'}: File exists"


def test_what_names_no_folder() -> None:
    with pytest.raises(TypeError, match=r"^path: 3 names no folder; give a path or owner/name$"):
        load_generator(3)  # type: ignore[arg-type]


def test_no_such_folder(tmp_path: Path) -> None:
    assert problem(tmp_path / "no") == f"{tmp_path / 'no'} does not exist"


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    assert problem(tmp_path) == f"{tmp_path} is no exported generator: it has no config.json"


def test_a_training_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    assert problem(tmp_path) == (
        f"{tmp_path} is a training checkpoint, which continues a run (gan resume), not an exported "
        "generator; that one is in the run's folder generator/"
    )


def test_a_run_without_a_generator(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    assert problem(tmp_path) == (
        f"{tmp_path} is a run that has not exported its generator yet; "
        f"finish it with: gan resume {tmp_path}"
    )


@pytest.mark.parametrize("content", ['{"model_type": "bert"}', "[]", "3"])
def test_a_config_of_something_else(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert problem(tmp_path) == (
        f"{tmp_path}/config.json is not of a generator exported by gan-toolkit"
    )


@pytest.mark.parametrize("content", [b"", b'{"kind": "gan-', b"\xff\xfe", b"[" * 100_000])
def test_a_config_that_was_cut_short(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    assert problem(folder) == f"{folder}/config.json is damaged or cut short; export it again"


def test_a_newer_format(folder: Path) -> None:
    edit(folder, version=2)
    assert problem(folder) == (
        f"{folder} has format 2, newer than this installation, which reads up to 1; "
        "upgrade gan-toolkit"
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"family": ["mlp"]}, "is damaged: family is ['mlp']"),
        ({"sha256": None}, "is damaged: sha256 is None"),
        ({"options": []}, "is damaged: options is []"),
        ({"family": "os.system"}, "describes no generator: family: 'os.system' is unknown; "),
        ({"shape": ["a", 4, 4]}, "describes no generator: "),
        ({"shape": [1, -4, 4]}, "describes no generator: "),
        ({"options": {"z_dim": "5"}}, "describes no generator: "),
        ({"options": {"z_dim": None}}, "describes no generator: "),
        ({"options": {"hidden": 3}}, "describes no generator: "),
        ({"options": {"__class__": 1}}, "describes no generator: generator.__class__: "),
        ({"options": {"name": "dcgan"}}, "describes no generator: "),
    ],
)
def test_a_config_that_was_tampered_with(folder: Path, changes: dict[str, Any], what: str) -> None:
    edit(folder, **changes)
    assert problem(folder).startswith(f"{folder}/config.json {what}")


def test_options_that_do_not_fit_the_weights(folder: Path) -> None:
    edit(folder, options={"z_dim": 5, "hidden": [8, 17], "num_classes": 3})
    assert problem(folder).startswith(
        f"{folder}/model.safetensors does not fit this network (6 tensors differ): "
        "layers.3.weight: (16, 8) there, (17, 8) here; "
    )


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_weights_that_were_damaged(folder: Path, damage: str) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[:-10]
    elif damage == "flipped":
        content[-1] ^= 1
    elif damage == "empty":
        content = bytearray()
    if damage == "other":
        save_file({"layers.0.weight": torch.zeros(8, 8)}, path)
    else:
        path.write_bytes(content)
    assert problem(folder) == (
        f"{path} is not the file that config.json describes: damaged, cut short or changed; "
        "export it again"
    )


def test_weights_that_are_gone(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert problem(folder) == f"cannot read {folder}/model.safetensors: No such file or directory"


def test_a_pickle_is_never_opened(folder: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "executed",)

    import hashlib

    bomb = pickle.dumps(Bomb())
    (folder / "model.safetensors").write_bytes(bomb)
    edit(folder, sha256=hashlib.sha256(bomb).hexdigest())
    assert problem(folder).startswith(f"{folder}/model.safetensors is no safetensors file: ")
    assert not (tmp_path / "executed").exists()
    pickle.loads(bomb)
    assert (tmp_path / "executed").exists()  # it would have gone off
