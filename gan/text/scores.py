"""What a classifier's logits are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import confusion_matrix, f1_score, matthews_corrcoef
from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """How well labels were predicted.

    Attributes:
        loss: mean cross-entropy, in nats.
        accuracy: share of the right ones.
        f1: of class 1 where there are two classes, else the mean over the classes.
        matthews: correlation of Matthews, from -1 to 1; 0 is chance.
        confusion: number of examples by (label, prediction).
    """

    loss: float
    accuracy: float
    f1: float
    matthews: float
    confusion: npt.NDArray[np.int64]

    @classmethod
    def of(cls, logits: Tensor, labels: Sequence[int]) -> Scores:
        """Judge logits.

        Args:
            logits: shape (examples, classes).
            labels: as many.

        Returns:
            The scores.
        """
        true, classes = torch.tensor(labels), range(logits.shape[1])
        guess = logits.argmax(dim=1)
        return cls(
            loss=torch.nn.functional.cross_entropy(logits.double(), true).item(),
            accuracy=(guess == true).double().mean().item(),
            f1=float(
                f1_score(true, guess, zero_division=0)
                if len(classes) == 2
                else f1_score(true, guess, average="macro", labels=list(classes), zero_division=0)
            ),
            matthews=float(matthews_corrcoef(true, guess)),
            confusion=confusion_matrix(true, guess, labels=list(classes)),
        )

    def numbers(self) -> dict[str, float]:
        """Everything but the confusion matrix, by name."""
        return {name: getattr(self, name) for name in ("loss", "accuracy", "f1", "matthews")}
