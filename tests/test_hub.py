"""The hub, played by a local folder; and what is said where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import errors

from gan.errors import CheckpointError, GanError
from gan.export import generator_config, load_generator, push_generator, save_generator
from gan.hub import is_hub_name, pull, push
from gan.networks import build_generator
from gan.sampling import sample

OPTIONS: dict[str, Any] = {"z_dim": 5, "hidden": (8,)}
NO_HUB = "http://127.0.0.1:9"  # nothing listens there


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "generator"
    generator = build_generator("mlp", (1, 4, 4), **OPTIONS)
    save_generator(folder, generator, family="mlp", shape=(1, 4, 4), options=OPTIONS)
    (folder / "README.md").write_text("card")
    (folder / "samples.png").write_bytes(b"picture")
    (folder / "secret.txt").touch()
    return folder


@pytest.fixture
def local_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the hub: owner/name/files."""
    root = tmp_path / "hub"

    def create_repo(self: Any, name: str, *, private: bool, exist_ok: bool) -> str:
        (root / name).mkdir(parents=True, exist_ok=exist_ok)
        (root / name / "private").write_text(str(private))
        return f"https://hub/{name}"

    def upload_folder(self: Any, *, repo_id: str, folder_path: Path, allow_patterns: Any) -> None:
        files = [str(path.relative_to(folder_path)) for path in folder_path.rglob("*")]
        for file in huggingface_hub.utils.filter_repo_objects(files, allow_patterns=allow_patterns):
            shutil.copy(folder_path / file, root / repo_id / file)

    def snapshot_download(name: str, *, revision: str | None, allow_patterns: Any) -> str:
        assert revision in (None, "main")
        assert (root / name / "config.json").exists()
        return str(root / name)

    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return root


def test_a_generator_goes_up_and_comes_down(
    folder: Path, local_hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert push_generator(folder.parent, "me/digits") == "https://hub/me/digits"
    files = sorted(path.name for path in (local_hub / "me" / "digits").iterdir())
    assert files == ["README.md", "config.json", "model.safetensors", "private", "samples.png"]
    assert (local_hub / "me" / "digits" / "private").read_text() == "True"
    monkeypatch.chdir(folder)  # where no folder is called me
    loaded = load_generator("me/digits")
    assert torch.equal(sample(loaded, range(4)), sample(load_generator(folder), range(4)))
    assert generator_config("me/digits@main") == generator_config(folder)


def test_a_damaged_generator_does_not_go_up(folder: Path, local_hub: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="damaged, cut short or changed"):
        push_generator(folder, "me/digits")
    assert not local_hub.exists()


@pytest.mark.parametrize("name", ["owner/name", "a/b-c_d.e", "A1/b"])
def test_names_on_the_hub(name: str) -> None:
    assert is_hub_name(name)


@pytest.mark.parametrize("name", ["digits", "./digits", "a/b/c", "/a/b", "../a", "a/", "a b/c", ""])
def test_what_is_no_name_on_the_hub(name: str) -> None:
    assert not is_hub_name(name)


def test_a_slip_of_the_pen_never_asks_the_hub(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parents[1])
    with pytest.raises(CheckpointError, match=r"^run/generador does not exist$"):
        load_generator("run/generador")


def test_push_to_something_else(folder: Path) -> None:
    with pytest.raises(GanError, match=r"^'digits' is no name on the hub; write owner/name$"):
        push_generator(folder, "digits")
    with pytest.raises(GanError, match=r"nothing is no folder$"):
        push(folder / "nothing", "me/digits", ["*"])


def test_push_without_a_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(GanError) as caught:
        push_generator(folder, "me/digits")
    assert str(caught.value) == (
        "the hub needs a token that may write: hf auth login, or set the environment variable "
        "HF_TOKEN"
    )


def test_without_a_network(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Api(huggingface_hub.HfApi):
        def __init__(self) -> None:
            super().__init__(endpoint=NO_HUB, token="hf_test")

    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    with pytest.raises(GanError, match=r"^me/digits: cannot reach the hub: "):
        push_generator(folder, "me/digits")

    def download(name: str, **options: Any) -> str:
        real = huggingface_hub._snapshot_download.snapshot_download
        return real(name, endpoint=NO_HUB, cache_dir=tmp_path / "cache", **options)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(GanError, match=r"^me/digits: cannot reach the hub: "):
        load_generator("me/digits")


class Answer(Exception):
    """What every version of the hub's errors has, without what differs between them."""

    def __init__(self, status: int) -> None:
        Exception.__init__(self, "first line\nsecond line")
        self.response = SimpleNamespace(status_code=status)


@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [
        (errors.GatedRepoError, 403, "me/digits: ask for access on its page on the hub, then log"),
        (
            errors.RepositoryNotFoundError,
            401,
            "me/digits: the hub has no such model, or hides it; ",
        ),
        (errors.RevisionNotFoundError, 404, "me/digits: the hub has no such revision of it"),
        (errors.HfHubHTTPError, 403, "me/digits: your token may not do that; log in with: "),
        (errors.HfHubHTTPError, 500, "me/digits: the hub answers 500: first line"),
    ],
)
def test_what_the_hub_refuses(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], status: int, message: str
) -> None:
    def refuse(name: str, **options: Any) -> str:
        raise type(kind.__name__, (Answer, kind), {"__str__": Exception.__str__})(status)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(GanError) as caught:
        pull("me/digits", ["*"])
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
