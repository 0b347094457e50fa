"""Feature networks by name: what turns images into vectors that a metric compares."""

from __future__ import annotations

import contextlib
import hashlib
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gan.errors import GanError
from gan.metrics.images import Images, as_rgb
from gan.metrics.judge import LENGTH, open_judge

FIDELITY = {
    "inception": "inception-v3-compat",
    "vgg16": "vgg16",
    "dinov2": "dinov2-vit-l-14",
    "clip": "clip-vit-b-32",
}
"""torch-fidelity's networks by our short names; its own long names do too."""
_RESIZE = {"inception": "bilinear 299 as in TensorFlow 1", "vgg16": "bilinear 224"}
_LENGTHS = {"self": LENGTH, "inception": 2048, "vgg16": 4096, "dinov2": 1024, "clip": 512}


def length_of(name: str, shape: Sequence[int]) -> int | None:
    """Numbers in a feature vector, without opening the network.

    Args:
        name: as `open_features` takes it.
        shape: of one image or point.

    Returns:
        How many; None: only the network knows.
    """
    if len(shape) == 1:
        return shape[0]
    short = name.partition(":")[0]
    return _LENGTHS.get({long: short for short, long in FIDELITY.items()}.get(short, short))


@dataclass(frozen=True)
class FeatureNetwork:
    """A feature network, and what must be known to compare numbers made with it.

    Attributes:
        name: what it was called.
        hash: of its weights.
        resize: how images are brought to its size.
        extract: bytes of shape (batch, *shape) to features (batch, length) and logits (batch,
            classes), or None for the logits where it is no classifier.
        accuracy: of a judge, on held-out data.
    """

    name: str
    hash: str
    resize: str
    extract: Callable[[Tensor], tuple[Tensor, Tensor | None]]
    accuracy: float | None = None


def open_features(
    name: str,
    data: Images,
    *,
    cache: Path | None = None,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> FeatureNetwork:
    """Open a feature network.

    Args:
        name: `self`, a classifier trained on `data` (for points: the points themselves);
            `inception`, `vgg16`, `dinov2` or `clip` of torch-fidelity, which downloads their
            weights, or `inception:FILE` where it cannot; a TorchScript file, called with bytes
            (batch, 3, height, width); or the folder of a transformers vision model.
        data: what it is to judge.
        cache: folder of judges; None: keep nothing.
        device: where it runs.
        progress: show a bar while a judge trains.

    Returns:
        The network.

    Raises:
        GanError: no such network, a missing package, or weights that cannot be had.
    """
    device = torch.device(device)
    if len(data.shape) == 1:
        return FeatureNetwork("points", "none", "none", lambda points: (points, None))
    if name == "self":
        judge = open_judge(data, cache, progress)
        squares = f"mean of pixels {judge.side}x{judge.side}"
        resize = "none" if data.shape[1:] == (judge.side, judge.side) else squares
        classifies = bool(data.num_classes)
        network = _on(judge, device, lambda out: (out[0], out[1] if classifies else None))
        return FeatureNetwork("self", _hash(judge), resize, network, judge.accuracy)
    short, _, weights = name.partition(":")
    if short in FIDELITY or short in FIDELITY.values():
        return _fidelity(short, weights or None, device)
    path = Path(name).expanduser()
    if path.is_file():
        return _torchscript(path, device)
    if (path / "config.json").is_file():
        return _transformers(path, device)
    raise GanError(
        f"features: {name!r} is unknown; give self, {', '.join(FIDELITY)}, a TorchScript file, or "
        "the folder of a transformers model"
    )


def _on(
    network: Any, device: torch.device, pick: Callable[[Any], tuple[Tensor, Tensor | None]]
) -> Callable[[Tensor], tuple[Tensor, Tensor | None]]:
    network.to(device)

    def extract(images: Tensor) -> tuple[Tensor, Tensor | None]:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            features, logits = pick(network(images.to(device)))
        return features.float().cpu(), None if logits is None else logits.float().cpu()

    return extract


def _fidelity(name: str, weights: str | None, device: torch.device) -> FeatureNetwork:
    try:
        from torch_fidelity import utils
    except ImportError:
        raise GanError(
            f"features: {name} needs torch-fidelity: pip install 'gan-toolkit[metrics]'"
        ) from None
    full = FIDELITY.get(name, name)
    kind = utils.FEATURE_EXTRACTORS_REGISTRY[full]
    layers = [kind.get_default_feature_layer_for_metric("fid")]
    classifier = full == FIDELITY["inception"]
    layers += ["logits_unbiased"] if classifier else []
    options = {"cuda": False, "verbose": False, "feature_extractor_weights_path": weights}
    try:
        if weights is not None:
            torch.load(weights, weights_only=True)  # torch-fidelity would run what is in it
        # It tells a person on stdout what it downloads.
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            network = utils.create_feature_extractor(full, layers, **options)
    except Exception as error:
        # No network, a broken file, weights of something else: each raises in its own way.
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise GanError(
            f"features: the weights of {name} cannot be had: {reason}; give their file as "
            f"{name}:FILE, or use features self, which needs none"
        ) from None
    pick = (lambda out: (out[0], out[1])) if classifier else (lambda out: (out[0], None))
    short = {long: short for short, long in FIDELITY.items()}.get(full, full)
    extract = _on(network, device, pick)
    resize = _RESIZE.get(short, "as torch-fidelity's " + full)
    return FeatureNetwork(short, _hash(network), resize, lambda images: extract(as_rgb(images)))


def _torchscript(path: Path, device: torch.device) -> FeatureNetwork:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls the format old
            network = torch.jit.load(str(path), map_location="cpu").eval()
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise GanError(f"features: {path} is no TorchScript file: {reason}") from None
    extract = _on(network, device, lambda features: (features.flatten(1), None))
    hashed = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return FeatureNetwork(path.name, hashed, "its own", lambda images: extract(as_rgb(images)))


def _transformers(path: Path, device: torch.device) -> FeatureNetwork:
    from transformers import AutoImageProcessor, AutoModel

    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        network = AutoModel.from_pretrained(path, use_safetensors=True, **safe).eval()
        processor = AutoImageProcessor.from_pretrained(path, **safe)
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise GanError(f"features: {path} is no vision model of transformers: {reason}") from None

    def pick(out: Any) -> tuple[Tensor, None]:
        pooled = getattr(out, "pooler_output", None)
        return (out.last_hidden_state.mean(1) if pooled is None else pooled.flatten(1)), None

    extract = _on(network, device, pick)

    def prepared(images: Tensor) -> tuple[Tensor, Tensor | None]:
        return extract(processor(list(as_rgb(images)), return_tensors="pt")["pixel_values"])

    resize = f"its processor's {getattr(processor, 'size', '')}"
    return FeatureNetwork(path.name, _hash(network), resize, prepared)


def _hash(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]
