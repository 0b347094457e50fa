"""A generator for programs without this package, or without Python: ONNX and TorchScript.

Both take `z` of shape (batch, z_dim), and `labels`, int64 of shape (batch,), where the generator
has classes, and give images in [-1, 1].
"""

from __future__ import annotations

import copy
import os
import warnings
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from gan.errors import GanError
from gan.sampling import labels_for, latents, unwrap

TOLERANCE = 1e-3
"""Most that a picture may differ, in units of [-1, 1]; a byte is 0.008."""


def export_generator(generator: nn.Module, path: Path) -> float:
    """Write a generator, load it again with the other program, and compare its pictures.

    Args:
        generator: as `gan.sampling.generate` takes it; any batch size will do afterwards.
        path: ends in .onnx, or in .pt for TorchScript.

    Returns:
        Largest difference of a pixel value between what the file makes and the generator makes.

    Raises:
        GanError: another ending, a missing package, a generator that the format cannot express,
            or pictures that differ. Nothing is left behind then.
    """
    formats = {".onnx": (_to_onnx, _run_onnx), ".pt": (_to_torchscript, _run_torchscript)}
    if path.suffix not in formats:
        raise GanError(f"{path}: give a file that ends in .onnx, or in .pt for TorchScript")
    write, run = formats[path.suffix]
    raw = unwrap(generator)
    network = _on_cpu(raw)
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(network, _inputs(raw, 2), temporary)
        # Another batch size: one that was baked in must not pass.
        inputs = _inputs(raw, 5)
        with torch.no_grad():
            difference = (run(temporary, inputs) - network(*inputs)).abs().max().item()
        if not difference <= TOLERANCE:
            raise GanError(f"{path.name}: its pictures differ by {difference:.2g}; it is not kept")
        os.replace(temporary, path)
    except GanError:
        raise
    except OSError as error:
        raise GanError(f"cannot write {path}: {error.strerror or error}") from None
    except Exception as error:
        # Tracers fail in many ways, and what follows the first line is for their developers.
        reason = str(error).strip().partition("\n")[0]
        raise GanError(f"{path.name}: this generator cannot be expressed so: {reason}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return float(difference)


def _on_cpu(raw: nn.Module) -> nn.Module:
    """A copy, so that the generator itself stays where and how it is."""
    network = copy.deepcopy(raw).cpu().float().eval().requires_grad_(False)
    if hasattr(network, "_original_forward"):  # Accelerate's other one would autocast
        network.forward = network._original_forward  # type: ignore[assignment]
    return network


def _inputs(raw: nn.Module, batch: int) -> tuple[Tensor, ...]:
    z = latents(range(batch), int(raw.z_dim))  # type: ignore[arg-type]
    num_classes = int(getattr(raw, "num_classes", 0))
    return (z, labels_for(range(batch), num_classes)) if num_classes else (z,)


def _to_onnx(network: nn.Module, inputs: tuple[Tensor, ...], path: Path) -> None:
    _need_onnx()
    free = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(network, inputs, dynamic_shapes=free, strict=True)
        onnx = torch.onnx.export(
            program,
            inputs,
            dynamo=True,
            input_names=["z", "labels"][: len(inputs)],
            output_names=["images"],
            verbose=False,
        )
    assert onnx is not None
    onnx.save(path)


def _run_onnx(path: Path, inputs: tuple[Tensor, ...]) -> Tensor:
    from onnxruntime import InferenceSession

    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = {name: value.numpy() for name, value in zip(("z", "labels"), inputs, strict=False)}
    return torch.from_numpy(session.run(["images"], feed)[0])


def _need_onnx() -> None:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise GanError(
            f"the format onnx needs the package {error.name}: pip install 'gan-toolkit[export]'"
        ) from None
    onnxruntime.set_default_logger_severity(3)  # only errors


def _to_torchscript(network: nn.Module, inputs: tuple[Tensor, ...], path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the format old, and every shape a risk
        torch.jit.trace(network, inputs, check_trace=False).save(str(path))


def _run_torchscript(path: Path, inputs: tuple[Tensor, ...]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images: Tensor = torch.jit.load(str(path))(*inputs)
    return images
