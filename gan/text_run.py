"""A text classifier's run: from options to everything that trains, to disk, and back.

The one `accelerator.prepare(...)` of the text classifier is here.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, DistributedDataParallelKwargs, set_seed
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, get_linear_schedule_with_warmup

from gan.accelerators import check_accelerator
from gan.checkpoint import Checkpoint, newest_checkpoint, remove_leftovers, save_checkpoint
from gan.errors import CheckpointError, ConfigError
from gan.optimizers import optimizer_class
from gan.player import Player
from gan.text.batches import Windows, data_loader
from gan.text.config import TextConfig
from gan.text.dataset import TextData
from gan.text.model import quiet
from gan.text.prepare import prepare

_FREE = {
    *("epochs", "max_steps", "patience", "eval_every", "save_every", "log_every", "keep"),
    *("num_workers", "padding", "mixed_precision", "gradient_checkpointing", "clip_norm", "metric"),
    *("batch_size", "gradient_accumulation_steps", "runs_dir", "name", "output_dir", "test_file"),
}


class MicroBatch(NamedTuple):
    """A part of an update, on one process.

    Attributes:
        inputs: of the model: int64 tensors of shape (batch, length).
        labels: shape (batch,).
        weight: of the mean loss; 1, except in the last update of an epoch.
    """

    inputs: dict[str, Tensor]
    labels: Tensor
    weight: float = 1.0


@dataclass
class TextRun:
    """Everything that one training is made of. What changes while it trains is at the end.

    Attributes:
        config: the options, with all that was left open filled in.
        examples: encoded texts by part: train, validation, test.
        order: of the training texts.
        loader: of the training texts, prepared.
        steps: updates of the whole run.
        step: updates done.
        best: best value of the metric so far; None: nothing was evaluated yet.
        best_step: when it was reached.
        waited: evaluations since then.
        seconds: spent on updates, in this process.
        folder: the run folder, once there is one.
    """

    config: TextConfig
    accelerator: Accelerator
    data: TextData
    tokenizer: Any
    max_length: int
    classifier: Player
    examples: dict[str, list[dict[str, Any]]]
    order: Windows
    loader: DataLoader[Any]
    steps: int

    step: int = 0
    best: float | None = None
    best_step: int = 0
    waited: int = 0
    seconds: float = 0.0
    folder: Path | None = None

    @property
    def model(self) -> Any:
        """The transformer, without wrappers."""
        return self.classifier.raw

    @property
    def output_dir(self) -> Path:
        """Where the best model is."""
        assert self.folder is not None, "the run has no folder yet"
        return self.config.output_dir or self.folder / "model"

    @property
    def pad_to(self) -> int | None:
        """Length that all batches are padded to; None: each to its own longest text."""
        return self.max_length if self.config.padding == "max" else None

    def windows(self) -> Iterator[list[MicroBatch]]:
        """Give what this process trains on, update by update, from the run's step on, for ever.

        Yields:
            The micro-batches of one update.
        """
        while True:
            self.order.position = self.step
            batches = iter(self.loader)
            for window in range(self.step % self.order.windows, self.order.windows):
                inputs = [dict(next(batches)) for _ in self.weights(window)]
                yield [
                    MicroBatch(values, values.pop("labels"), weight)
                    for values, weight in zip(inputs, self.weights(window), strict=True)
                ]
            next(batches, None)  # lets Accelerate see the end of the epoch

    def weights(self, window: int) -> list[float]:
        """Weight of each micro-batch of this process.

        Args:
            window: number of the update in its epoch.

        Returns:
            One number for each.
        """
        return self.order.weights(window, self.accelerator.process_index)


def build(config: TextConfig) -> TextRun:
    """Build a run, leaving nothing on disk.

    Args:
        config: the options.

    Returns:
        The run, at step 0.

    Raises:
        ConfigError: options that cannot be, for these texts, this model or this machine.
        DataError: the texts cannot be used.
        GanError: the model or the texts are on the hub, and it cannot be reached.
    """
    config = config.check()
    accelerator = Accelerator(
        device_placement=True,
        # Unless told of the CPU, Accelerate trains one copy a process there, all unaware.
        cpu=not torch.accelerator.is_available(),
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        step_scheduler_with_optimizer=False,  # its unit is an update, whatever the processes
        dataloader_config=DataLoaderConfiguration(even_batches=False),  # no text counts twice
        kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)],
    )
    check_accelerator(accelerator)
    with accelerator.main_process_first():  # one process downloads, the others find it
        ready = prepare(config)
    tokenizer, model, examples = ready.tokenizer, ready.model.train(), ready.examples
    order = Windows(
        [len(example["input_ids"]) for example in examples["train"]],
        config.batch_size,
        micro_batches=config.gradient_accumulation_steps,
        processes=accelerator.num_processes,
        seed=config.seed,
        group_by_length=config.group_by_length,
    )
    assert config.epochs is not None
    assert config.lr is not None
    steps = config.max_steps or config.epochs * order.windows

    optimizer = _optimizer(config, model)
    warmup = int(config.warmup * steps)
    scheduler = get_linear_schedule_with_warmup(optimizer, warmup, steps)
    loader = data_loader(
        examples["train"],
        order,
        tokenizer,
        pad_to=ready.max_length if config.padding == "max" else None,
        num_workers=config.num_workers,
    )
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    classifier = Player(
        accelerator, model, optimizer, scheduler, name="classifier", clip_norm=config.clip_norm
    )
    # From here on chance is dropout: each process has its own, the first the one of a plain loop.
    set_seed(config.seed, device_specific=True)
    return TextRun(
        config=config,
        accelerator=accelerator,
        data=ready.data,
        tokenizer=tokenizer,
        max_length=ready.max_length,
        classifier=classifier,
        examples=examples,
        order=order,
        loader=loader,
        steps=steps,
    )


def _optimizer(config: TextConfig, model: nn.Module) -> torch.optim.Optimizer:
    """The class as it is, and not its fused form, which rounds otherwise than a plain loop."""
    kind = optimizer_class(config.optimizer)
    options = {"lr": config.lr}
    if config.weight_decay is not None:
        options["weight_decay"] = config.weight_decay
    try:
        return kind(model.parameters(), **options)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimizer: {config.optimizer}: {error}") from None


# --- to disk and back ----------------------------------------------------------------------------


def save(run: TextRun) -> Path:
    """Write a checkpoint. Every process calls it.

    Args:
        run: the run, between two updates.

    Returns:
        The checkpoint's folder.

    Raises:
        CheckpointError: it could not be written; older ones are whole.
        DivergenceError: a weight is not finite.
    """
    run.classifier.check_finite(run.step)
    assert run.folder is not None, "the run has no folder yet"
    return save_checkpoint(
        run.accelerator,
        run.folder / "checkpoints",
        run.step,
        modules={"classifier": run.model},
        states={
            "classifier": run.classifier.state_dict(),
            "run": {"best": run.best, "best_step": run.best_step, "waited": run.waited},
        },
        manifest={
            "config": run.config.to_dict(),
            "texts_per_update": run.order.size,
            "fingerprint": run.data.fingerprint,
        },
        keep=run.config.keep,
    )


def save_model(run: TextRun, folder: Path) -> None:
    """Write the model as it is now, with its tokenizer, whole or not at all.

    Args:
        run: the run; one process calls it.
        folder: where plain transformers loads it from. What is there is replaced.

    Raises:
        CheckpointError: it could not be written.
    """
    new, old = (folder.with_name(f".{word}-{folder.name}") for word in ("new", "old"))
    try:
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        with quiet():
            run.model.save_pretrained(new)
            run.tokenizer.model_max_length = run.max_length  # so that others cut where training did
            run.tokenizer.save_pretrained(new)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise CheckpointError(
            f"could not save {folder}: {error}; free some space, then resume"
        ) from None


def load_best(run: TextRun) -> None:
    """Put the best model so far back into a run, for a last look at it.

    Args:
        run: a run that has evaluated.
    """
    with quiet():
        best = AutoModelForSequenceClassification.from_pretrained(run.output_dir)
    run.model.load_state_dict(best.state_dict())


def resume(folder: Path, config: TextConfig | None = None) -> TextRun:
    """Build a run again and put it where its newest complete checkpoint left it.

    Args:
        folder: the run folder.
        config: changed options; None: those of the run.

    Returns:
        The run, ready for `fit`.

    Raises:
        CheckpointError: no run, or no complete checkpoint, there.
        ConfigError: something that cannot change was changed; names it.
    """
    config = config or saved_config(folder)
    checkpoint = newest_checkpoint(folder / "checkpoints")
    if checkpoint is None:
        raise CheckpointError(f"{folder} has no complete checkpoint yet; start again")
    saved = TextConfig.from_dict(checkpoint.manifest["config"])
    refused = [
        f"{field.name}: {getattr(config, field.name)}, but the run was trained with "
        f"{getattr(saved, field.name)}; it cannot change on resume"
        for field in dataclasses.fields(TextConfig)
        if field.name not in _FREE and getattr(config, field.name) != getattr(saved, field.name)
    ]
    if refused:
        raise ConfigError(refused)
    run = build(config)
    _restore(run, checkpoint, folder)
    return run


def saved_config(folder: Path) -> TextConfig:
    """Options of a run on disk.

    Args:
        folder: the run folder.

    Returns:
        What its `config.yaml` holds, with `runs_dir` and `name` as the folder is called now.

    Raises:
        CheckpointError: the folder is no run.
        ConfigError: its `config.yaml` is not that of a text classifier.
    """
    if not (folder / "config.yaml").is_file():
        raise CheckpointError(f"{folder} is no run folder: there is no config.yaml in it")
    config = TextConfig.load(folder / "config.yaml")
    return dataclasses.replace(config, runs_dir=folder.parent, name=folder.resolve().name)


def _restore(run: TextRun, checkpoint: Checkpoint, folder: Path) -> None:
    manifest, states = checkpoint.manifest, checkpoint.states()
    if run.data.fingerprint != manifest["fingerprint"]:
        raise ConfigError(
            f"the texts of {run.data.name} are not those that {folder} was trained on"
        )
    if run.order.size != manifest["texts_per_update"]:
        raise ConfigError(
            f"batch_size: {run.order.size} texts an update, over all micro-batches and processes; "
            f"it was {manifest['texts_per_update']} before, and cannot change on resume"
        )
    checkpoint.load_weights("classifier", run.model)
    run.classifier.load_state_dict(states["classifier"])
    run.step, run.folder = checkpoint.step, folder
    for name, value in states["run"].items():
        setattr(run, name, value)
    if run.accelerator.is_main_process:
        remove_leftovers(folder / "checkpoints")
        run.config.save(folder / "config.yaml")
    checkpoint.restore_random_state(run.accelerator.process_index)
