"""One evaluation: fakes against real images, with everything that makes its numbers comparable."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gan.chance import generator_for
from gan.errors import GanError
from gan.metrics.features import FeatureNetwork, length_of, open_features
from gan.metrics.images import Images
from gan.metrics.scores import (
    METRICS,
    Features,
    check,
    floor_of,
    halves,
    nearest_gap,
    possible,
    scores,
)
from gan.progress import progress_bar
from gan.sampling import generate, latents, to_bytes, unwrap

PIECE = 64
"""Images of one call of the feature network: torch-fidelity's batch size."""
_ORDER = "in order"
"""Part of the name of cached features; another order of them is another cache."""


def evaluate(
    fakes: nn.Module | Images,
    reals: Images,
    *,
    features: str | FeatureNetwork = "self",
    num: int = 10_000,
    seed: int = 0,
    metrics: Sequence[str] | None = None,
    held_out: Images | None = None,
    floor: bool = True,
    truncation: float | None = None,
    subset: int = 1000,
    about: Mapping[str, Any] | None = None,
    cache: Path | None = None,
    accelerator: Accelerator | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Compare generated images with real ones. Every process calls it and gets the same answer.

    A generator makes the images of the seeds `seed`, `seed + 1`, ...; with classes, of the
    classes that the real images have, in an order that only the real data decides.

    Args:
        fakes: a generator, or images.
        reals: real images of the same shape; all of them are used.
        features: name of a feature network, as `open_features` takes it, or one that is open.
        num: how many fakes to make; of images, at most how many to take: all of them in their
            order, so that the numbers are torch-fidelity's, or a random part.
        seed: the first seed.
        metrics: names out of `METRICS`; None: all that the feature network allows.
        held_out: real images that training has not seen. The same numbers for them are the floor
            that a perfect generator reaches, and they show what is a copy. None: see `floor`.
        floor: where nothing is held out, take one random half of the real images against the
            other as the floor, and say so.
        truncation: see `gan.sampling.generate`.
        subset: images in each of KID's subsets.
        about: more to be stored: weights, step, ...
        cache: folder for what depends on the real data only; None: keep nothing.
        accelerator: shares the work among its processes; None: this process alone, on the CPU.
        progress: show a bar on the main process.

    Returns:
        `values` by metric; `floor`, the same for real images, and in `floor_of` which; `nearest`,
        the median distance of a fake to its nearest real image as a multiple of an unseen image's
        (1 is new, near 0 is copied); `notes`, a sentence each; and the conditions.

    Raises:
        GanError: shapes that differ, too few images, fakes that are not finite, an unknown metric,
            one that has no value, or a feature network that cannot be had.
        TypeError: what is neither a generator nor images.
    """
    _check_pair(fakes, reals)
    main = accelerator is None or accelerator.is_main_process
    count = num if isinstance(fakes, nn.Module) else min(num, len(fakes))
    asked = METRICS if metrics is None else metrics
    # Before a network is trained or downloaded, as far as its length is known.
    length = length_of(features, reals.shape) if isinstance(features, str) else None
    check(asked, count, len(reals), length or 0, subset)
    network = _network(features, reals, cache, accelerator, progress and main)
    work = _Work(network, accelerator, progress and main)

    real = _of_data(reals, len(reals), work, cache)
    check(asked, count, len(reals), real.vectors.shape[1], subset)
    if isinstance(fakes, nn.Module):
        fake = _of_generator(fakes, reals, range(seed, seed + count), truncation, work)
    else:
        fake = _of_data(fakes, count, work, None)
    if broken := int((~fake.vectors.isfinite().all(1)).sum()):
        raise GanError(f"{broken} of {count} fakes are not finite: there is nothing to measure")

    held = None if held_out is None else _of_data(held_out, count, work, cache)
    answer: list[Any] = [None]
    if main:
        try:
            chosen = possible(asked, fake)
            if metrics is not None and chosen != tuple(asked):
                raise GanError("metrics: inception_score needs a feature network that classifies")
            answer = [_compared(fake, real, held, chosen, subset, floor)]
        except GanError as error:  # every process has to know, or it would wait for ever
            answer = [error]
    if work.processes > 1:
        broadcast_object_list(answer)
    if isinstance(answer[0], GanError):
        raise answer[0]
    conditions = {
        "features": network.name,
        "features_hash": network.hash,
        "features_accuracy": network.accuracy,
        "resize": network.resize,
        "fakes": count,
        "reals": len(reals),
        "data": reals.name,
        "data_fingerprint": reals.fingerprint,
        "seed": seed if isinstance(fakes, nn.Module) else None,
        "truncation": truncation,
        "kid_subset": subset if "kid" in answer[0]["values"] else None,
        "torch_fidelity": version("torch-fidelity"),
    }
    return {
        **answer[0],
        **conditions,
        **(about or {}),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def record(path: Path, entry: Mapping[str, Any]) -> bool:
    """Add an evaluation to a `metrics.json`; whole or not at all.

    An evaluation of the same thing under the same conditions (step, weights, features, counts,
    seed, ...) that is there already, as after a resume, gives way to the new one.

    Args:
        path: the file, a list of evaluations; made if missing.
        entry: what `evaluate` gave.

    Returns:
        Whether it took the place of another one.

    Raises:
        GanError: the file cannot be read as such a list, or cannot be written.
    """
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        if not isinstance(entries, list):
            raise ValueError
        others = [each for each in entries if _conditions(each) != _conditions(entry)]
        with temporary.open("w", encoding="utf-8") as file:
            file.write(json.dumps([*others, entry], indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except ValueError:
        raise GanError(f"{path} is no list of evaluations; move it away") from None
    except OSError as error:
        raise GanError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()
    return len(others) < len(entries)


def _conditions(entry: Any) -> Any:
    """What makes two evaluations the same one: all but what came out, and which metrics did."""
    if not isinstance(entry, Mapping):
        return entry
    values = entry.get("values")
    found = ("values", "floor", "floor_of", "nearest", "notes", "features_accuracy", "time")
    names = sorted(values) if isinstance(values, Mapping) else []
    kept = {key: value for key, value in entry.items() if key not in found and value is not None}
    return names, kept


def _check_pair(fakes: Any, reals: Any) -> None:
    if isinstance(fakes, nn.Module) and not hasattr(unwrap(fakes), "z_dim"):
        raise TypeError(f"fakes: a {type(fakes).__name__} is no generator: it has no z_dim")
    given = {"reals": reals} if isinstance(fakes, nn.Module) else {"fakes": fakes, "reals": reals}
    for name, images in given.items():
        if not all(hasattr(images, each) for each in ("shape", "fingerprint", "__getitems__")):
            kind = type(images).__name__
            raise TypeError(f"{name}: a {kind} is no set of images; gan.open_data(PATH) gives one")
    made: Any = unwrap(fakes) if isinstance(fakes, nn.Module) else fakes
    shape, classes = tuple(made.shape), getattr(made, "num_classes", 0)
    if shape != tuple(reals.shape):
        raise GanError(f"the fakes have shape {shape} and the real images {tuple(reals.shape)}")
    if isinstance(fakes, nn.Module) and classes not in (0, reals.num_classes):
        raise GanError(
            f"the generator has {classes} classes and {reals.name} has {reals.num_classes}"
        )


# --- the parts -----------------------------------------------------------------------------------


class _Work:
    """Features of many images: piece after piece, dealt to the processes in turn."""

    def __init__(
        self, network: FeatureNetwork, accelerator: Accelerator | None, progress: bool
    ) -> None:
        self.network, self.progress = network, progress
        self.rank = 0 if accelerator is None else accelerator.process_index
        self.processes = 1 if accelerator is None else accelerator.num_processes

    def by_all(self, done: bool) -> bool:
        """Whether every process says so."""
        return all(gather_object([done])) if self.processes > 1 else done

    def features(self, what: str, count: int, images: Callable[[slice], Tensor]) -> Features:
        """Features of `count` images; `images` gives a range of them, as bytes or in [-1, 1]."""
        starts = range(0, count, PIECE)
        mine = {}
        share = starts[self.rank :: self.processes]
        for start in progress_bar(share, what, disable=not self.progress):
            piece = images(slice(start, min(start + PIECE, count)))
            finite = piece.isfinite().flatten(1).all(1)
            made = piece.is_floating_point() and piece.ndim == 4
            found, classes = self.network.extract(to_bytes(piece) if made else piece)
            # The bytes of what is not finite look like any others; its features must not.
            mine[start] = found.masked_fill(~finite[:, None], float("nan")), classes
        if self.processes > 1:
            mine = {start: pair for part in gather_object([mine]) for start, pair in part.items()}
        vectors, logits = zip(*(mine[start] for start in starts), strict=True)
        return Features(torch.cat(vectors), None if logits[0] is None else torch.cat(logits))


def _network(
    features: str | FeatureNetwork,
    reals: Images,
    cache: Path | None,
    accelerator: Accelerator | None,
    progress: bool,
) -> FeatureNetwork:
    if isinstance(features, FeatureNetwork):
        return features
    device = "cpu" if accelerator is None else accelerator.device
    if accelerator is None or accelerator.num_processes == 1:
        return open_features(features, reals, cache=cache, device=device, progress=progress)
    # Trained or downloaded once, and then the others find it.
    with accelerator.main_process_first():
        return open_features(features, reals, cache=cache, device=device, progress=progress)


def _of_generator(
    generator: nn.Module, reals: Images, seeds: range, truncation: float | None, work: _Work
) -> Features:
    raw = unwrap(generator)
    labels: Tensor | None = None
    if getattr(raw, "num_classes", 0):
        shuffled = reals.labels[
            torch.randperm(len(reals), generator=generator_for("metric labels"))
        ]
        labels = shuffled.repeat(-(-len(seeds) // len(shuffled)))[: len(seeds)]

    def images(piece: slice) -> Tensor:
        z = latents(seeds[piece], int(raw.z_dim))  # type: ignore[arg-type]
        part = None if labels is None else labels[piece]
        return generate(raw, z, part, truncation=truncation)

    return work.features("fakes", len(seeds), images)


def _of_data(data: Images, count: int, work: _Work, cache: Path | None) -> Features:
    """Features of the data, or of a random part that only its size decides, in their order."""
    count = min(count, len(data))
    key = f"{_ORDER} {data.fingerprint} {count} {len(data)} "
    key += f"{work.network.name} {work.network.hash}"
    name = hashlib.sha256(f"{key} {work.network.resize}".encode()).hexdigest()[:24]
    path = None if cache is None else cache / f"features-{name}.safetensors"
    found = None if path is None else _load(path)
    if work.by_all(found is not None) and found is not None:
        return found
    order = torch.randperm(len(data), generator=generator_for("metric images"))
    chosen = order[:count].sort().values.tolist()
    features = work.features(
        "real images", count, lambda piece: data.__getitems__(chosen[piece])[0]
    )
    if path is not None and work.rank == 0:
        _save(features, path)
    return features


def _compared(
    fake: Features,
    real: Features,
    held: Features | None,
    metrics: Sequence[str],
    subset: int,
    floor: bool,
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "values": scores(fake, real, metrics, subset=subset),
        **{"floor": None, "floor_of": None, "nearest": None, "notes": []},
    }
    if held is None and not floor:
        return result
    notes: list[str] = result["notes"]
    pair = halves(real) if held is None else (held, real)
    result["floor"], missing = floor_of(*pair, metrics, subset)
    notes += [f"no floor of {name}: {why}" for name, why in missing.items()]
    if result["floor"]:
        result["floor_of"] = (
            f"{len(pair[0].vectors):,} unseen real images"
            if held is not None
            else f"one half of the real images ({len(pair[0].vectors):,}) against the other, as "
            "there are no unseen ones; half as many give a higher fid"
        )
    unit = (
        nearest_gap(real.vectors, real.vectors, others=True)
        if held is None
        else nearest_gap(held.vectors, real.vectors)
    )
    result["nearest"] = nearest_gap(fake.vectors, real.vectors) / unit if unit else None
    if result["nearest"] is not None and result["nearest"] < 0.5:
        notes.append("the fakes are much closer to the real images than unseen ones are: copies?")
    best = 0.0 if held is None else (result["floor"] or {}).get("fid", 0.0)
    if result["values"].get("fid", best) < 0.5 * best:
        notes.append("fid is far below that of real images that training has not seen: copies?")
    return result


def _save(features: Features, path: Path) -> None:
    tensors = {"vectors": features.vectors.contiguous()}
    if features.logits is not None:
        tensors["logits"] = features.logits.contiguous()
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    with suppress(OSError, SafetensorError):  # a cache that cannot be written costs time only
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary)
        os.replace(temporary, path)


def _load(path: Path) -> Features | None:
    try:
        tensors = load_file(path)
        return Features(tensors["vectors"], tensors.get("logits"))
    except (OSError, SafetensorError, KeyError, ValueError):
        return None
