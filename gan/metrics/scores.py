"""From features to numbers. The mathematics is torch-fidelity's; here are the conditions of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gan.chance import generator_for
from gan.errors import GanError

METRICS = ("fid", "kid", "inception_score", "precision", "recall")
"""What can be asked for; `kid_std` and `inception_score_std` come with theirs."""
_PAIRS = 10_000  # most images of either kind in precision and recall, which compare all pairs
_SEED = 2020  # torch-fidelity's own


@dataclass(frozen=True)
class Features:
    """What a feature network said of a set of images.

    Attributes:
        vectors: float32, shape (count, length).
        logits: float32, shape (count, classes), where it is a classifier.
    """

    vectors: Tensor
    logits: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse what a gather or a reshape may have flattened."""
        if self.vectors.ndim != 2:
            raise ValueError(
                f"features have shape {tuple(self.vectors.shape)}, not (count, length)"
            )


def possible(metrics: Sequence[str], fake: Features) -> tuple[str, ...]:
    """Leave out the inception score where the feature network is no classifier.

    Args:
        metrics: names.
        fake: features of the fakes.

    Returns:
        The names that can be computed, given enough images.
    """
    return tuple(each for each in metrics if each != "inception_score" or fake.logits is not None)


def check(metrics: Sequence[str], fakes: int, reals: int, length: int, subset: int) -> None:
    """Find out whether the metrics can be computed.

    Args:
        metrics: names.
        fakes: how many there are.
        reals: how many there are.
        length: of a feature vector.
        subset: images in each of KID's subsets.

    Raises:
        GanError: an unknown metric, too few images (says how many it needs), or torch-fidelity is
            missing.
    """
    if subset < 2:
        raise GanError(f"kid_subset: {subset} is below 2")
    for metric in metrics:
        if metric not in METRICS:
            raise GanError(f"metrics: {metric!r} is not one of {', '.join(METRICS)}")
        least = _least(metric, length, subset)
        for kind, count in (("fakes", fakes), ("real images", reals)):
            if count < least and not (metric == "inception_score" and kind != "fakes"):
                usual = " (10,000 are usual)" if kind == "fakes" else ""
                raise GanError(
                    f"{metric} needs at least {least} {kind}{usual}; there are {count}; leave "
                    f"{metric} out of the metrics, or give more"
                )
    _fidelity()


def _least(metric: str, length: int, subset: int) -> int:
    """Images of either kind that a metric needs."""
    # Fewer images than numbers in a vector leave the covariance without full rank.
    needed = {"fid": length + 1, "kid": subset, "inception_score": 100}
    return needed.get(metric, 50)


def scores(
    fake: Features, real: Features, metrics: Sequence[str], *, subset: int = 1000
) -> dict[str, float]:
    """Compare two sets of features.

    Args:
        fake: of the generated images.
        real: of the real ones.
        metrics: names out of `METRICS`.
        subset: images in each of KID's hundred subsets.

    Returns:
        By name: fid (0 is best), kid and kid_std (about 0 is best), inception_score and its std
        over ten parts (higher is better), precision and recall (shares; of at most 10,000 images
        of each kind).

    Raises:
        GanError: too few images, a metric that has no value, or torch-fidelity is missing.

    Reference: Heusel et al. 2017, arXiv 1706.08500 (FID); Binkowski et al. 2018, arXiv 1801.01401
        (KID); Salimans et al. 2016, arXiv 1606.03498 (inception score); Kynkaanniemi et al. 2019,
        arXiv 1904.06991 (precision and recall).
    """
    check(metrics, len(fake.vectors), len(real.vectors), fake.vectors.shape[1], subset)
    fid, isc, kid, prc = _fidelity()
    values: dict[str, float] = {}
    if "fid" in metrics:
        with _explained("fid"):
            # In double precision: the sums of thousands of singles lose the digits that matter.
            both = [fid.fid_features_to_statistics(each.vectors.double()) for each in (fake, real)]
            distance = fid.fid_statistics_to_metric(*both, verbose=False)[fid.KEY_METRIC_FID]
        values["fid"] = max(0.0, distance)  # equal sets give a rounding error of either sign
    if "kid" in metrics:
        options: dict[str, Any] = {"kid_subset_size": subset, "rng_seed": _SEED, "verbose": False}
        with _explained("kid"):
            found = kid.kid_features_to_metric(fake.vectors, real.vectors, **options)
        values["kid"] = found[kid.KEY_METRIC_KID_MEAN]
        values["kid_std"] = found[kid.KEY_METRIC_KID_STD]
    if "inception_score" in metrics:
        with _explained("inception_score"):
            found = isc.isc_features_to_metric(fake.logits, rng_seed=_SEED)
        values["inception_score"] = found[isc.KEY_METRIC_ISC_MEAN]
        values["inception_score_std"] = found[isc.KEY_METRIC_ISC_STD]
    if {"precision", "recall"} & set(metrics):
        options = {"save_cpu_ram": True, "prc_batch_size": 1000, "verbose": False}
        with _explained("precision"):
            both = [_part(each.vectors, _PAIRS) for each in (fake, real)]
            found = prc.prc_features_to_metric(*both, **options)
        values |= {name: found[name] for name in ("precision", "recall") if name in metrics}
    for name, value in values.items():
        if not math.isfinite(value):
            raise GanError(f"{name} is {value:g}: the features leave no other value")
    return values


@contextmanager
def _explained(metric: str) -> Iterator[None]:
    """What torch-fidelity and numpy raise of features that they cannot use, as one sentence."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (ArithmeticError, AssertionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise GanError(f"{metric} cannot be computed of these features: {reason}") from None


def _part(vectors: Tensor, most: int) -> Tensor:
    """A random part that only the count decides: data are often in the order of their classes."""
    if len(vectors) <= most:
        return vectors
    order = torch.randperm(len(vectors), generator=generator_for("metric part"))
    return vectors[order[:most].sort().values]


def halves(features: Features) -> tuple[Features, Features]:
    """Two random halves of a set, the same ones each time.

    Args:
        features: of all images.

    Returns:
        The halves; with an odd count one image is in neither.
    """
    count = len(features.vectors)
    order = torch.randperm(count, generator=generator_for("metric halves"))
    parts = order[: count // 2], order[count // 2 : count // 2 * 2]
    logits = features.logits
    one, other = (
        Features(features.vectors[part], None if logits is None else logits[part]) for part in parts
    )
    return one, other


def floor_of(
    one: Features, other: Features, metrics: Sequence[str], subset: int
) -> tuple[dict[str, float] | None, dict[str, str]]:
    """The numbers of real images against real images, as far as there are enough of them.

    Args:
        one: of the images that stand in for the fakes.
        other: of the real images.
        metrics: names.
        subset: images in each of KID's subsets.

    Returns:
        Values by name, or None where there is none; and why a metric has none.
    """
    count, length = min(len(one.vectors), len(other.vectors)), one.vectors.shape[1]
    needed = {metric: _least(metric, length, subset) for metric in metrics}
    missing = {
        metric: f"it needs at least {least} images on either side; there are {count}"
        for metric, least in needed.items()
        if count < least
    }
    values = scores(one, other, [each for each in metrics if each not in missing], subset=subset)
    return values or None, missing


def nearest_gap(vectors: Tensor, real: Tensor, *, others: bool = False) -> float:
    """How far images are from the nearest real one, in the middle: copies are at 0.

    Args:
        vectors: features, shape (count, length).
        real: features of the real images, shape (reals, length).
        others: `vectors` are those of the real images, and each looks for another one.

    Returns:
        Median over the images of the distance to the nearest real image.
    """
    nearest = []
    for start in range(0, len(vectors), 500):
        part = vectors[start : start + 500]
        gaps = torch.cat([torch.cdist(part, each) for each in torch.split(real, 10_000)], 1)
        if others:
            gaps[:, start : start + len(part)].fill_diagonal_(math.inf)
        nearest.append(gaps.amin(1))
    return torch.cat(nearest).median().item()


def _fidelity() -> tuple[ModuleType, ModuleType, ModuleType, ModuleType]:
    try:
        from torch_fidelity import metric_fid, metric_isc, metric_kid, metric_prc
    except ImportError:
        raise GanError("metrics need torch-fidelity: pip install 'gan-toolkit[metrics]'") from None
    return metric_fid, metric_isc, metric_kid, metric_prc
