"""Every option of a text classifier's training: a frozen dataclass that round-trips through YAML.

The field docstrings are the command line's help. Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from gan import serial
from gan.errors import ConfigError

EMBEDDED = "python-docs"
SMALL = "small"
_POSITIVE = ("batch_size", "gradient_accumulation_steps", "log_every", "keep")
_POSITIVE_OR_NONE = ("epochs", "max_steps", "max_length", "eval_every", "save_every", "patience")


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Everything that decides what the training of a text classifier does."""

    dataset: str | None = None
    """python-docs (needs no download), or a data set of the hub such as glue/mrpc; None:
    python-docs, unless there is a train_file."""
    train_file: Path | None = None
    """CSV, TSV, JSON lines, or a folder with one folder of .txt files for each class."""
    validation_file: Path | None = None
    """Same; None: a part of the training texts is split off."""
    test_file: Path | None = None
    """Same; without labels, its classes are predicted."""
    text_columns: tuple[str, ...] = ()
    """One or two columns with text; none given: found by name and content."""
    label_column: str | None = None
    """Column with the class; None: found by name and content."""
    encoding: str | None = None
    """Of the files, such as cp1252; None: UTF-8, or Windows-1252 for a file that is not."""
    validation_share: float = 0.2
    """Share of the training texts that is split off where there is no validation file."""

    model: str | None = None
    """Name on the hub, or folder, of a pretrained model; small: a small one that is built here;
    None: small for python-docs, distilbert-base-cased for everything else."""
    max_length: int | None = None
    """Longest text in tokens; None: as long as the model can read (small: 64)."""
    dropout: float | None = None
    """Every dropout of the model; None: the model's own."""

    epochs: int | None = None
    """Passes over the training texts; None: 3, or 4 for the small model."""
    max_steps: int | None = None
    """Stop after so many updates instead."""
    batch_size: int = 32
    """Texts of one micro-batch on one process."""
    gradient_accumulation_steps: int = 1
    """Micro-batches of one update."""
    optimizer: str = "Adam"
    """Any optimizer class of torch.optim, by name: Adam, AdamW, Adafactor, ..."""
    lr: float | None = None
    """Highest learning rate; None: 2e-5, or 1e-3 for the small model."""
    weight_decay: float | None = None
    """The optimizer's weight decay; None: its own (AdamW has 0.01, Adam none)."""
    warmup: float = 0.1
    """Share of the updates in which the learning rate rises from 0; then it falls to 0."""
    clip_norm: float | None = None
    """Clip the gradient to that norm; None: only measure it."""

    padding: Literal["batch", "max"] = "batch"
    """Pad texts to the longest of their batch, or all to max_length."""
    group_by_length: bool = True
    """Put texts of similar length into one batch."""
    gradient_checkpointing: bool = False
    """Forget activations and compute them again in the backward pass: less memory, more time."""
    mixed_precision: Literal["no", "fp16", "bf16"] = "no"
    """Precision of forward and backward."""
    num_workers: int = 0
    """Processes that pad batches; 0: the training process itself."""
    seed: int = 0
    """Decides the split, the new weights, the order of the texts and the dropout."""

    metric: Literal["accuracy", "f1", "matthews", "loss"] = "accuracy"
    """What the best model is best at."""
    eval_every: int | None = None
    """Updates between evaluations; None: after every epoch."""
    patience: int | None = None
    """Stop after so many evaluations without a better one; None: never."""
    save_every: int | None = None
    """Updates between checkpoints; None: with every evaluation."""
    keep: int = 1
    """How many of the newest checkpoints to keep."""
    log_every: int = 10
    """Updates between points in TensorBoard."""
    runs_dir: Path = Path("runs")
    """Folder that holds the run folders."""
    name: str | None = None
    """Name of the run's folder; None: text and the next free number."""
    output_dir: Path | None = None
    """Where the best model goes, as save_pretrained writes it; None: model, in the run's folder."""

    @property
    def small(self) -> bool:
        """Whether the model is built here."""
        return self.model == SMALL

    def check(self) -> TextConfig:
        """Fill in what depends on other options, and look for what cannot be.

        Returns:
            The configuration to use.

        Raises:
            ConfigError: all problems at once, each naming option, value and what is allowed.
        """
        problems = list(_problems(self))
        if problems:
            raise ConfigError(problems)
        changes: dict[str, Any] = {}
        if self.dataset is None and self.train_file is None:
            changes["dataset"] = EMBEDDED
        embedded = EMBEDDED in (self.dataset, changes.get("dataset"))
        small = self.small or (self.model is None and embedded)
        defaults: dict[str, Any] = {"model": "distilbert-base-cased", "epochs": 3, "lr": 2e-5}
        if small:
            defaults = {"model": SMALL, "epochs": 4, "lr": 1e-3, "max_length": 64}
        changes |= {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TextConfig:
        """Lay plain values over the defaults.

        Args:
            values: by name, as YAML gives them.

        Returns:
            The configuration, unchecked.

        Raises:
            ConfigError: unknown options and wrong types, all at once.
        """
        problems: list[str] = []
        config = serial.overlay(cls(), values, problems)
        if problems:
            raise ConfigError(problems)
        return cast("TextConfig", config)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for YAML or JSON."""
        return cast("dict[str, Any]", serial.to_plain(self))

    def save(self, path: Path) -> None:
        """Write a `config.yaml`; `load` gives the same configuration back.

        Args:
            path: the file.
        """
        text = yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)
        path.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> TextConfig:
        """Read a `config.yaml`.

        Args:
            path: the file.

        Returns:
            The configuration, unchecked.

        Raises:
            ConfigError: no such file, not YAML, unknown options or wrong types.
        """
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{path} holds no options; expected lines like 'epochs: 3'")
        try:
            return cls.from_dict(values)
        except ConfigError as error:
            raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from None


def _problems(config: TextConfig) -> Iterator[str]:
    for name in (*_POSITIVE, *_POSITIVE_OR_NONE):
        value = getattr(config, name)
        if value is not None and value < 1:
            yield f"{name}: {value} is below 1"
    for name in ("num_workers", "seed", "weight_decay"):
        if (getattr(config, name) or 0) < 0:
            yield f"{name}: {getattr(config, name)} is negative"
    if config.seed >= 2**32:
        yield f"seed: {config.seed} is above 4294967295, the most that numpy takes"
    if config.lr is not None and not 0 < config.lr < float("inf"):
        yield f"lr: {config.lr:g} is not above 0"
    if config.clip_norm is not None and config.clip_norm <= 0:
        yield f"clip_norm: {config.clip_norm:g} is not above 0; leave it out for no clipping"
    if config.dropout is not None and not 0 <= config.dropout < 1:
        yield f"dropout: {config.dropout:g} is outside [0, 1)"
    if not 0 <= config.warmup <= 1:
        yield f"warmup: {config.warmup:g} is outside [0, 1]; it is a share of the updates"
    if not 0 < config.validation_share < 1:
        yield f"validation_share: {config.validation_share:g} is outside (0, 1)"
    if len(config.text_columns) > 2:
        yield f"text_columns: {', '.join(config.text_columns)} are more than two"
    if config.dataset is not None and config.train_file is not None:
        yield f"dataset: {config.dataset}, but there is a train_file too; give one of them"
    if config.train_file is None and (config.validation_file or config.test_file):
        yield "train_file: none is given, but a validation_file or test_file is"
    if config.name is not None and (
        config.name in ("", ".", "..") or {"/", "\\"} & set(config.name)
    ):
        yield f"name: {config.name!r} is not the name of a folder"
