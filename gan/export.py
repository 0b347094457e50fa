"""A generator that anyone can load: weights as safetensors, and a `config.json` that rebuilds it.

    generator/
        model.safetensors   the weights, and nothing else
        config.json         what it is: kind, version, family, shape, options, value range, hash

Loading needs neither the run nor its options, and runs no code from the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from gan import hub
from gan.checkpoint import load_weights
from gan.errors import CheckpointError, GanError
from gan.networks import build_generator
from gan.sampling import unwrap

VERSION = 1
"""Version of the format. Files of a newer version are refused."""
KIND = "gan-toolkit generator"
FILES = ("config.json", "model.safetensors")
_WRAPPERS = re.compile(r"^(?:_orig_mod\.|module\.)+|(?<=\.)_orig_mod\.")


def save_generator(
    folder: Path,
    module: nn.Module,
    *,
    family: str,
    shape: Sequence[int],
    options: Mapping[str, Any],
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a generator; each file whole or not at all, and only if it can be loaded again.

    Args:
        folder: where to; made if missing. Other files in it stay.
        module: the generator, wrapped or not.
        family: of networks, as `build_generator` takes it.
        shape: of one image, (channels, height, width), or of one point, (2,).
        options: the family's other options; plain values.
        extra: more about it for `config.json`, such as class_names; plain values.

    Raises:
        CheckpointError: the weights are not those of such a generator, or the folder cannot be
            written.
    """
    state = {_WRAPPERS.sub("", name): value for name, value in unwrap(module).state_dict().items()}
    load_weights(_build(family, shape, options), state, "the generator to export")
    packed = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in state.items()
    }
    weights = save(packed)
    config = {
        "kind": KIND,
        "version": VERSION,
        "family": family,
        "shape": list(shape),
        "options": dict(options),
        "value_range": [-1, 1],
        "sha256": hashlib.sha256(weights).hexdigest(),
    }
    text = json.dumps(
        config | {k: v for k, v in (extra or {}).items() if k not in config}, indent=2
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "model.safetensors", weights)
        _write(folder / "config.json", text.encode() + b"\n")
    except OSError as error:
        raise CheckpointError(f"cannot write {folder}: {error.strerror}") from None


def load_generator(path: Path | str) -> nn.Module:
    """Rebuild an exported generator.

    Args:
        path: the folder, or a run folder that has one, or a name on the Hugging Face hub,
            `owner/name`, optionally with `@revision`.

    Returns:
        The generator on the CPU, in eval mode, with attributes z_dim, num_classes and shape.

    Raises:
        CheckpointError: no such folder, another kind of folder, damaged files, or a newer format.
        GanError: the hub has no such generator, or cannot be reached.
        TypeError: `path` is neither a path nor a text.
    """
    if not isinstance(path, str | Path):
        raise TypeError(f"path: {path!r} names no folder; give a path or owner/name")
    folder, config = _open(_local(path))
    file = folder / "model.safetensors"
    try:
        weights = file.read_bytes()
        if hashlib.sha256(weights).hexdigest() != config["sha256"]:
            raise CheckpointError(
                f"{file} is not the file that config.json describes: damaged, cut short or "
                "changed; export it again"
            )
        state = load(weights)
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}") from None
    except SafetensorError as error:
        raise CheckpointError(f"{file} is no safetensors file: {error}") from None
    package, colon, _ = str(config["family"]).partition(":")
    if colon and package not in sys.modules:  # a file does not decide what is imported
        raise CheckpointError(
            f"{folder} needs {config['family']}, which is not part of gan-toolkit: "
            f"import {package} before it is loaded"
        )
    try:
        generator = _build(config["family"], config["shape"], config["options"])
    except (GanError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"{folder}/config.json describes no generator: {error}") from None
    load_weights(generator, state, str(file))
    return generator.eval()


def generator_config(path: Path | str) -> dict[str, Any]:
    """What `config.json` says of an exported generator.

    Args:
        path: as `load_generator` takes it.

    Returns:
        kind, version, family, shape, options, value_range, sha256, and what else was stored.

    Raises:
        CheckpointError: as `load_generator`, without looking at the weights.
    """
    return _open(_local(path))[1]


def push_generator(path: Path | str, name: str, *, private: bool = True) -> str:
    """Upload an exported generator to the Hugging Face hub, after loading it once.

    Args:
        path: the folder, or a run folder that has one.
        name: owner/name.
        private: whether a new repository is visible to its owner only.

    Returns:
        Address of its page.

    Raises:
        CheckpointError: as `load_generator`.
        GanError: no token, no network, or the hub refuses.
    """
    folder, _ = _open(Path(path))
    load_generator(folder)
    return hub.push(folder, name, (*FILES, "README.md", "*.png"), private=private)


def _local(path: Path | str) -> Path:
    name, _, revision = str(path).partition("@")
    here = Path(path).exists() or Path(path).parent.exists()  # runs/digits-01 is a slip of the pen
    if isinstance(path, str) and not here and hub.is_hub_name(name):
        return hub.pull(name, FILES, revision or None)
    return Path(path)


def _open(path: Path) -> tuple[Path, dict[str, Any]]:
    folder = path / "generator" if (path / "generator" / "config.json").exists() else path
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(_other_kind(path)) from None
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"{file} is damaged or cut short; export it again") from None
    if not isinstance(config, dict) or config.get("kind") != KIND:
        raise CheckpointError(f"{file} is not of a generator exported by gan-toolkit")
    version = config.get("version")
    if isinstance(version, int) and version > VERSION:
        raise CheckpointError(
            f"{folder} has format {version}, newer than this installation, which reads up to "
            f"{VERSION}; upgrade gan-toolkit"
        )
    expected = {"family": str, "shape": list, "options": dict, "sha256": str}
    wrong = [key for key, kind in expected.items() if not isinstance(config.get(key), kind)]
    if wrong:
        raise CheckpointError(f"{file} is damaged: {wrong[0]} is {config.get(wrong[0])!r}")
    return folder, config


def _other_kind(path: Path) -> str:
    if not path.exists():
        return f"{path} does not exist"
    if (path / "manifest.json").exists():
        return (
            f"{path} is a training checkpoint, which continues a run (gan resume), not an exported "
            "generator; that one is in the run's folder generator/"
        )
    if (path / "config.yaml").exists():
        return (
            f"{path} is a run that has not exported its generator yet; "
            f"finish it with: gan resume {path}"
        )
    return f"{path} is no exported generator: it has no config.json"


def _build(family: str, shape: Sequence[int], options: Mapping[str, Any]) -> nn.Module:
    with torch.random.fork_rng([]):  # its fresh weights are thrown away
        return build_generator(family, shape, **options)


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()
