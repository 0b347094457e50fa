"""Two networks can fail without a number going wrong: say so, once, and what to try."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from torch import Tensor

_log = logging.getLogger(__name__)


class Health:
    """Watches for losses that stand still, a discriminator that has won, a collapsed generator."""

    PINNED = 1.98
    """sign/real - sign/fake lies between -2 and 2; above this every image is told apart."""
    VANISHED = 0.01
    """Share of its largest gradient norm below which the generator learns nothing more."""
    PATIENCE = 10
    """Points in TensorBoard that this must last."""
    COLLAPSED = 0.05
    """Variety of the samples, as a share of the data's."""
    PATIENCE_SAMPLES = 3
    """Grids that this must last; an untrained generator's samples are all alike, too."""

    SKIPPED = 0.05
    """Share of a network's updates that fp16 may skip; finding the scale takes a few."""
    PATIENCE_UPDATES = 200
    """Updates to try before judging that share."""

    DOMINATES = 0.5
    """Share of the discriminator's loss above which its penalties are most of what it learns."""
    SILENT = 0.002
    """Distance of the mean logits below which penalties have left the discriminator no opinion.
    Measured on the digits: 0.02 with gamma 1, 0.0002 with gamma 1000."""
    NEGLIGIBLE = 1e-4
    """Share of the discriminator's loss below which penalties do nothing."""

    def __init__(self, real: Tensor, suggested_gamma: float | None = None) -> None:
        """Measure the data's variety.

        Args:
            real: some real examples in [-1, 1], shape (n, ...).
            suggested_gamma: what the rule for the resolution and the batch gives, for messages.
        """
        self._suggested_gamma = suggested_gamma
        self._heavy = self._light = 0
        self._real_variety = variety(real)
        self._largest = 0.0
        self._points = self._grids = self._still = 0
        self._losses: tuple[float, float] | None = None
        self._said: set[str] = set()

    def after_scalars(self, values: Mapping[str, float]) -> None:
        """Look at one point of the curves.

        Args:
            values: by TensorBoard tag.
        """
        gradient = values["grad_norm/generator"]
        self._largest = max(self._largest, gradient)
        pinned = values["sign/real"] - values["sign/fake"] > self.PINNED
        vanished = gradient < self.VANISHED * self._largest
        self._points = self._points + 1 if pinned and vanished else 0
        if self._points >= self.PATIENCE:
            self._say(
                "the discriminator has won: it tells every image apart, and the generator's "
                f"gradient has fallen to {gradient:.1e}, from {self._largest:.1e}; try a larger "
                "gamma or a penalty (--penalties r1 r2), the relativistic loss, or a smaller "
                "--discriminator.lr"
            )
        self._look_at_penalties(values)

    def after_losses(self, discriminator: float, generator: float) -> None:
        """Look at both losses of one point of the curves.

        Args:
            discriminator: its adversarial loss.
            generator: likewise.
        """
        # Of other images another loss is expected, if only in the last digit.
        losses = discriminator, generator
        self._still = self._still + 1 if losses == self._losses else 0
        self._losses = losses
        if self._still >= self.PATIENCE:
            self._say(
                f"the losses stand still at {discriminator:.4f} (discriminator) and "
                f"{generator:.4f} (generator), whatever the images: nothing reaches the logits; "
                "look for a saturated or dead activation or weights that are all 0 in the "
                "discriminator"
            )

    def _look_at_penalties(self, values: Mapping[str, float]) -> None:
        gammas = [values[tag] for tag in ("weight/r1", "weight/r2") if tag in values]
        share = values.get("penalty_share/discriminator")
        if share is None or not gammas:
            return
        silent = abs(values["logits/real"] - values["logits/fake"]) < self.SILENT
        self._heavy = self._heavy + 1 if share > self.DOMINATES or silent else 0
        self._light = self._light + 1 if share < self.NEGLIGIBLE and not silent else 0
        gamma, rule = max(gammas), ""
        if self._suggested_gamma is not None:
            rule = f" (a rule for this size and batch starts at {self._suggested_gamma:g})"
        if self._heavy >= self.PATIENCE:
            what = "it says the same of real and fake" if silent else f"they are {share:.0%} of it"
            self._say(
                f"gamma {gamma:g} is too large: the penalties leave the discriminator's loss no "
                f"room, {what}; try --gamma {gamma / 10:g}{rule}"
            )
        if self._light >= self.PATIENCE:
            # With which they would be a hundredth of the loss.
            useful = float(f"{gamma * min(0.01 / max(share, 1e-12), 1e6):.0e}")
            self._say(
                f"gamma {gamma:g} is too small: the penalties are {share:.1g} of the "
                f"discriminator's loss and do nothing; try --gamma {useful:g}{rule}"
            )

    def after_updates(self, name: str, updates: int, skipped: int) -> None:
        """Look at how often fp16 skipped a network's update.

        Args:
            name: the network's role.
            updates: made so far.
            skipped: skipped so far.
        """
        share = skipped / max(updates + skipped, 1)
        if updates + skipped >= self.PATIENCE_UPDATES and share > self.SKIPPED:
            self._say(
                f"the {name} skips {share:.0%} of its updates, because gradients overflow fp16: "
                "try --mixed_precision bf16 or no, or a smaller weight of what overflows"
            )

    def after_samples(self, samples: Tensor) -> float:
        """Look at the averaged generator's samples.

        Args:
            samples: in [-1, 1], shape (n, ...).

        Returns:
            Their variety, as a share of the data's: about 1 for a good generator.
        """
        share = variety(samples) / max(self._real_variety, 1e-12)
        self._grids = self._grids + 1 if share < self.COLLAPSED else 0
        if self._grids >= self.PATIENCE_SAMPLES:
            self._say(
                f"the generator has collapsed: its samples vary {share:.1%} as much as the data; "
                "try a larger gamma or a penalty (--penalties r1 r2), the relativistic loss, or "
                "a smaller --generator.lr"
            )
        return share

    def _say(self, sentence: str) -> None:
        kind = sentence[:20]
        if kind not in self._said:
            self._said.add(kind)
            _log.warning(sentence)


def variety(images: Tensor) -> float:
    """How much examples differ from each other.

    Args:
        images: shape (n, ...).

    Returns:
        Standard deviation over the examples, averaged over the pixels.
    """
    return float(images.float().std(dim=0, correction=0).mean())
