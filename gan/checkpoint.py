"""Checkpoints: complete or absent, keyed by role, readable without running anybody's code.

    step-00001000/
        manifest.json                what it is: kind, step, roles, versions, config, file hashes
        generator.safetensors ...    weights, one file a role
        state.pt                     optimizers, schedulers, scalers, counters: no objects
        random-0.pt ...              random state, one file a process

A checkpoint is written into a hidden folder, flushed and renamed; only then older ones go. Whatever
kills the process in between, the newest folder named `step-*` is whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pickle
import random
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gan.errors import CheckpointError

VERSION = 1
KIND = "gan-toolkit training checkpoint"
_NAME = re.compile(r"step-(\d+)")
_PREFIXES = re.compile(r"^(?:_orig_mod\.|module\.)+")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk.

    Attributes:
        path: its folder.
        manifest: what it says of itself.
    """

    path: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        """Completed steps."""
        return int(self.manifest["step"])

    def weights(self, role: str) -> dict[str, Tensor]:
        """Weights of one network.

        Args:
            role: such as generator, discriminator, ema.

        Returns:
            Its state dict, without wrapper prefixes.

        Raises:
            CheckpointError: the role is not in it, or the file is damaged.
        """
        if role not in self.manifest["roles"]:
            raise CheckpointError(
                f"{self.path}: holds no {role}; it holds {', '.join(self.manifest['roles'])}"
            )
        try:
            weights = load_file(self.path / f"{role}.safetensors")
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{self.path / role}.safetensors is damaged: {error}") from None
        return {_PREFIXES.sub("", name): tensor for name, tensor in weights.items()}

    def load_weights(self, role: str, module: nn.Module) -> None:
        """Put the weights of a role into a network.

        Args:
            role: such as generator.
            module: a raw (unwrapped) network of the same shape.

        Raises:
            CheckpointError: names the first three tensors that do not fit.
        """
        load_weights(module, self.weights(role), f"{self.path / role}.safetensors")

    def states(self) -> dict[str, Any]:
        """Everything else, by role, as it was given to `save_checkpoint`.

        Returns:
            The mapping.

        Raises:
            CheckpointError: the file is damaged, or holds more than tensors and plain values.
        """
        return cast("dict[str, Any]", _load(self.path / "state.pt"))

    def restore_random_state(self, process_index: int) -> None:
        """Put back the global random state of one process.

        Args:
            process_index: whose. A process that the saved run did not have keeps its own.
        """
        path = self.path / f"random-{process_index}.pt"
        if path.exists():
            _set_random_state(_load(path))


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Load a state dict strictly, with one readable sentence if it does not fit.

    Args:
        module: the raw network.
        weights: its state dict, without wrapper prefixes.
        source: what to call it in the message.

    Raises:
        CheckpointError: names the first three tensors that do not fit.
    """
    mine = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    theirs = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    wrong = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    if wrong:
        first = "; ".join(
            f"{name}: {theirs.get(name, 'absent')} there, {mine.get(name, 'absent')} here"
            for name in wrong[:3]
        )
        raise CheckpointError(
            f"{source} does not fit this network ({len(wrong)} tensors differ): {first}"
        )
    module.load_state_dict(weights)


def save_checkpoint(
    accelerator: Accelerator,
    root: Path,
    step: int,
    *,
    modules: Mapping[str, nn.Module],
    states: Mapping[str, Any],
    manifest: Mapping[str, Any],
    keep: int | None = None,
) -> Path:
    """Write a checkpoint atomically. Every process calls it; the main one writes what is shared.

    Args:
        accelerator: the run's Accelerator.
        root: folder of the checkpoints.
        step: completed steps; names the folder.
        modules: raw networks by role.
        states: tensors and plain values by role, the same on every process.
        manifest: more to say of it: plain values.
        keep: keep so many of the newest checkpoints; None: all.

    Returns:
        The folder.

    Raises:
        CheckpointError: the disk is full or cannot be written. Older checkpoints are whole.
    """
    final, work = root / f"step-{step:08d}", root / f".tmp-step-{step:08d}"
    problem = ""
    if accelerator.is_main_process:
        try:
            remove_leftovers(root)
            _need_space(root, modules, states)
            work.mkdir(parents=True)
        except OSError as error:
            problem = str(error)
    accelerator.wait_for_everyone()
    try:
        if work.is_dir():
            _save(_random_state(), work / f"random-{accelerator.process_index}.pt")
            if accelerator.is_main_process:
                for role, module in modules.items():
                    weights = {
                        k: v.detach().contiguous().cpu() for k, v in module.state_dict().items()
                    }
                    save_file(_untied(weights), work / f"{role}.safetensors")
                _save(dict(states), work / "state.pt")
    except (OSError, RuntimeError, SafetensorError) as error:
        problem = problem or str(error)
    failed = accelerator.reduce(torch.tensor(float(bool(problem)), device=accelerator.device))
    if accelerator.is_main_process and not failed.item():
        try:
            about = {"kind": KIND, "version": VERSION, "step": step, "roles": list(modules)}
            _finish(work, final, {**about, **manifest})
            if keep is not None:
                _forget(root, keep)
        except OSError as error:
            problem = str(error)
    if accelerator.is_main_process and (problem or failed.item()):
        shutil.rmtree(work, ignore_errors=True)
    failed = accelerator.reduce(torch.tensor(float(bool(problem)), device=accelerator.device))
    if failed.item():
        raise CheckpointError(
            f"could not save {final}: {problem or 'another process failed'}; "
            "older checkpoints are untouched. Free some space or choose another --runs_dir, "
            "then resume the run"
        )
    return final


def newest_checkpoint(root: Path) -> Checkpoint | None:
    """Newest complete checkpoint, passing over damaged ones with a warning.

    Args:
        root: folder of the checkpoints.

    Returns:
        The checkpoint, or None where there is none.

    Raises:
        CheckpointError: there are checkpoints, but all of them are damaged.
    """
    damaged = []
    for folder in reversed(_folders(root)):
        try:
            return open_checkpoint(folder)
        except CheckpointError as error:
            damaged.append(str(error))
            _log.warning("%s; going back to the one before it", error)
    if damaged:
        raise CheckpointError(f"{root}: every checkpoint is damaged: {'; '.join(damaged)}")
    return None


def open_checkpoint(folder: Path) -> Checkpoint:
    """Open one checkpoint and check every file of it against its manifest.

    Args:
        folder: a `step-*` folder.

    Returns:
        The checkpoint.

    Raises:
        CheckpointError: missing, of another kind, from a newer version, truncated or changed.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{folder} is no complete checkpoint: manifest.json: {error}"
        ) from None
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise CheckpointError(f"{folder} is no training checkpoint")
    if manifest["version"] > VERSION:
        raise CheckpointError(
            f"{folder} has version {manifest['version']}, this installation reads up to {VERSION}; "
            "upgrade gan-toolkit"
        )
    for name, digest in manifest["files"].items():
        if not (folder / name).is_file() or _digest(folder / name) != digest:
            raise CheckpointError(f"{folder} is damaged: {name} is missing or not what was saved")
    return Checkpoint(folder, manifest)


def _folders(root: Path) -> list[Path]:
    """Checkpoint folders, oldest first, by number and not by text."""
    found = [
        (int(match[1]), path)
        for path in root.glob("step-*")
        if (match := _NAME.fullmatch(path.name))
    ]
    return [path for _, path in sorted(found)]


def remove_leftovers(root: Path) -> None:
    """Remove what a killed process left half-written or half-removed.

    Args:
        root: folder of the checkpoints.
    """
    for path in [*root.glob(".tmp-step-*"), *root.glob(".old-step-*")]:
        shutil.rmtree(path, ignore_errors=True)


def _forget(root: Path, keep: int) -> None:
    for folder in _folders(root)[:-keep]:
        hidden = folder.with_name(f".old-{folder.name}")
        folder.rename(hidden)  # a half-removed checkpoint must not look like one
        shutil.rmtree(hidden)


def _finish(work: Path, final: Path, manifest: dict[str, Any]) -> None:
    files = sorted(path for path in work.iterdir())
    manifest["files"] = {path.name: _digest(path) for path in files}
    manifest["versions"] = {name: version(name) for name in ("torch", "accelerate")}
    (work / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for path in [*files, work / "manifest.json", work]:
        _flush(path)
    if final.exists():  # the same step again, after going back to an older checkpoint
        hidden = final.with_name(f".old-{final.name}")
        final.rename(hidden)
        work.rename(final)
        shutil.rmtree(hidden)
    else:
        work.rename(final)
    _flush(final.parent)


def _flush(path: Path) -> None:
    if os.name == "posix" or path.is_file():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        hasher = hashlib.sha256()
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()


def _need_space(root: Path, modules: Mapping[str, nn.Module], states: Mapping[str, Any]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    tensors = [t for module in modules.values() for t in module.state_dict().values()]
    need = sum(t.numel() * t.element_size() for t in [*tensors, *_tensors(states)])
    need, free = int(need * 1.1) + (1 << 20), shutil.disk_usage(root).free
    if free < need:
        raise OSError(f"it needs {need / 2**20:.1f} MiB and {free / 2**20:.1f} MiB are free")


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    items = (
        value.values()
        if isinstance(value, Mapping)
        else value
        if isinstance(value, list | tuple)
        else ()
    )
    return [tensor for item in items for tensor in _tensors(item)]


def _untied(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights that share memory as copies, which safetensors asks for."""
    seen: set[int] = set()
    for name, tensor in weights.items():
        if tensor.data_ptr() in seen:
            weights[name] = tensor.clone()
        seen.add(tensor.data_ptr())
    return weights


def _save(value: Any, path: Path) -> None:
    with path.open("wb") as file:
        torch.save(value, file)


def _load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is damaged or holds more than tensors: {reason}") from None


def _random_state() -> dict[str, Any]:
    name, keys, *rest = cast("Any", np.random.get_state())  # noqa: NPY002  (whoever uses it)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [str(name), torch.from_numpy(keys.astype(np.int64)), *rest],
        "python": random.getstate(),
    }


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    version_, keys, gauss = state["python"]
    random.setstate((version_, tuple(keys), gauss))
