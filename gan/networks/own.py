"""Networks of your own: any two classes with these signatures work everywhere.

    class MyGenerator(nn.Module):
        def __init__(self, shape, *, z_dim, num_classes, ...): ...
        def forward(self, z, labels=None): ...     # (batch, z_dim) to (batch, *shape), in [-1, 1]

    class MyDiscriminator(nn.Module):
        def __init__(self, shape, *, num_classes, ...): ...
        def forward(self, x, labels=None): ...     # (batch, *shape) to logits, (batch,)

`shape` is (channels, height, width). With `num_classes` 0 they are called without labels, else with
int64 labels of shape (batch,). Further keywords come from the option `options`. With several
processes every weight must take part in every update, unless `find_unused_parameters` is set.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gan.errors import GanError

BATCH = 2
"""Examples of the first forward, which shows whether the shapes fit."""


def own_class(role: str, name: str) -> type[nn.Module]:
    """Import a class of a person's own.

    Args:
        role: generator or discriminator, for messages.
        name: `package:Class`; a package that is not installed is looked for in the working
            directory.

    Returns:
        The class.

    Raises:
        GanError: it cannot be imported, or is no torch module.
    """
    package, _, attribute = name.partition(":")
    here = str(Path.cwd())
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(package), attribute, None)
    except Exception as error:
        raise GanError(
            f"{role}.module: cannot import {package}: {type(error).__name__}: {error}; "
            f"it must be installed, or a file or folder in {here}"
        ) from error
    finally:
        if added:
            sys.path.remove(here)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        what = "it has no such name" if found is None else "that is no class of torch.nn.Module"
        raise GanError(f"{role}.module: {name}: {what}")
    return found


def build_own(role: str, name: str, shape: Sequence[int], options: dict[str, Any]) -> nn.Module:
    """Build a network of a person's own, and call it once.

    Args:
        role: generator or discriminator.
        name: `package:Class`.
        shape: of one example.
        options: for its constructor; of a generator also z_dim, of both num_classes.

    Returns:
        The network, with attributes shape, num_classes and, of a generator, z_dim.

    Raises:
        GanError: it cannot be imported, built or called, or what it gives has another shape.
    """
    kind = own_class(role, name)
    given = ", ".join(f"{key}={value!r}" for key, value in options.items())
    try:
        network = kind(tuple(shape), **options)
    except Exception as error:
        raise GanError(
            f"{role}.module: {name}({tuple(shape)}, {given}) fails: "
            f"{type(error).__name__}: {error}; see gan.networks.own for the signature"
        ) from error
    about = {"shape": tuple(shape), "num_classes": int(options.get("num_classes", 0))}
    about |= {"z_dim": options["z_dim"]} if role == "generator" else {}
    _call_once(role, name, network.eval(), about)
    for key, value in about.items():
        setattr(network, key, value)
    return network.train()


def _call_once(role: str, name: str, network: nn.Module, about: dict[str, Any]) -> None:
    shape, num_classes = about["shape"], about["num_classes"]
    inner = (about["z_dim"],) if role == "generator" else shape
    expected = (BATCH, *shape) if role == "generator" else (BATCH,)
    with torch.random.fork_rng([]), torch.no_grad():
        inputs = [torch.randn(BATCH, *inner)]
        inputs += [torch.arange(BATCH) % num_classes] if num_classes else []
        given = " and labels ".join(str(tuple(each.shape)) for each in inputs)
        try:
            out = network(*inputs)
        except Exception as error:
            raise GanError(
                f"{role}.module: {name} fails on inputs of shape {given}: "
                f"{type(error).__name__}: {error}"
            ) from error
    gives = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
    if gives != expected:
        hint = "; end it with .squeeze(1)" if gives == (*expected, 1) else ""
        raise GanError(
            f"{role}.module: {name} makes {gives} of inputs of shape {given}; "
            f"expected {expected}{hint}"
        )
