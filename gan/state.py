"""A run to disk and back: save, resume, roll back."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

from gan import power_ema
from gan.checkpoint import Checkpoint, newest_checkpoint, remove_leftovers, save_checkpoint
from gan.config import Config
from gan.errors import CheckpointError, ConfigError, DivergenceError
from gan.network_config import OWN_FLAGS
from gan.player import Player
from gan.regularizers import Remembering
from gan.run import Run, build

_log = logging.getLogger(__name__)
_FIXED = ("data", "resolution", "channels", "fit", "labels", "conditional", "preset", "ema_widths")
_FIXED_NETWORK = ("family", "module", *OWN_FLAGS, "options", "z_dim")


def save(run: Run) -> Path:
    """Write a checkpoint of a run. Every process calls it.

    Args:
        run: the run, between two steps.

    Returns:
        The checkpoint's folder.

    Raises:
        CheckpointError: it could not be written; older ones are whole.
    """
    run.latest = run.scalars()  # the same on every process, so that each resumes with the same
    return save_checkpoint(
        run.accelerator,
        checkpoints(run.folder),
        run.step,
        modules={
            "generator": run.generator.raw,
            "discriminator": run.discriminator.raw,
            "ema": run.ema.module,
            **_power_modules(run),
        },
        states={
            "generator": run.generator.state_dict(),
            "discriminator": run.discriminator.state_dict(),
            "ema": run.ema.state_dict(),
            "power_ema": run.power_ema.state_dict(),
            "augment": run.augment.state_dict(),
            "penalties": {name: term.state_dict() for name, term in _remembering(run).items()},
            "run": {
                "step": run.step,
                "images_seen": run.images_seen,
                "images_read": run.stream.position * run.config.batch_size,
                "rollbacks": run.rollbacks,
                "latest": run.latest,
            },
        },
        manifest={
            "images_seen": run.images_seen,
            "num_processes": run.accelerator.num_processes,
            "data": {
                "name": run.data.name,
                "fingerprint": run.data.fingerprint,
                "images": len(run.data),
            },
            "config": run.config.to_dict(),
            "generator": {
                "family": run.config.generator.architecture,
                "shape": list(run.data.shape),
                "options": run.generator_options,
            },
        },
        keep=run.config.keep,
    )


def checkpoints(folder: Path | None) -> Path:
    """Where a run's checkpoints are.

    Args:
        folder: the run folder.

    Returns:
        Its `checkpoints` folder.
    """
    assert folder is not None, "the run has no folder yet"
    return folder / "checkpoints"


def saved_config(folder: Path) -> Config:
    """Configuration of a run on disk.

    Args:
        folder: the run folder.

    Returns:
        What its `config.yaml` holds, with `runs_dir` and `name` as the folder is called now.

    Raises:
        CheckpointError: the folder is no run; lists the runs beside it.
        ConfigError: its `config.yaml` cannot be read.
    """
    if not (folder / "config.yaml").is_file():
        parent = folder if folder.is_dir() else folder.parent
        runs = sorted(path.parent.name for path in parent.glob("*/config.yaml"))
        there = f"runs in {parent}: {', '.join(runs)}" if runs else f"there is no run in {parent}"
        raise CheckpointError(f"{folder} is no run folder (no config.yaml in it); {there}")
    return _where_it_is(Config.load(folder / "config.yaml"), folder)


def _where_it_is(config: Config, folder: Path) -> Config:
    return dataclasses.replace(config, runs_dir=folder.parent, name=folder.resolve().name)


def resume(folder: Path, config: Config | None = None) -> Run:
    """Build a run again and put it where its newest complete checkpoint left it.

    Args:
        folder: the run folder.
        config: changed options; None: those of the run.

    Returns:
        The run, ready for `fit`.

    Raises:
        CheckpointError: no run, or no complete checkpoint, there.
        ConfigError: an option that cannot change was changed; names it.
    """
    config = _where_it_is(config or saved_config(folder), folder)
    checkpoint = newest_checkpoint(checkpoints(folder))
    if checkpoint is None:
        raise CheckpointError(
            f"{folder} has no complete checkpoint yet; start again with "
            f"gan train --config {folder / 'config.yaml'}"
        )
    changed = _changes(config, checkpoint)
    if config.steps < checkpoint.step:
        raise ConfigError(f"steps: {config.steps}, but the run is at step {checkpoint.step}")
    goes_on = config.steps > checkpoint.step
    for line in changed if goes_on else ():
        _log.info("changed on resume: %s", line)
    run = build(config)
    saved = checkpoint.manifest
    _compare_data(run, folder, saved["data"])
    if run.accelerator.num_processes != saved["num_processes"]:
        _log.info("processes: %d, was %d", run.accelerator.num_processes, saved["num_processes"])
    before = Config.from_dict(saved["config"]).images_per_process * saved["num_processes"]
    if run.images_per_update != before:
        _log.warning(
            "an update now sees %d images, was %d: that is another training; batch_size, "
            "gradient_accumulation_steps and the processes decide it",
            run.images_per_update, before,
        )  # fmt: skip
    run.folder = folder
    restore(run, checkpoint)
    if run.accelerator.is_main_process:
        remove_leftovers(checkpoints(folder))
        if goes_on:  # else it would say what nothing was trained with
            run.config.save(folder / "config.yaml")
    return run


def restore(run: Run, checkpoint: Checkpoint) -> None:
    """Put a run where a checkpoint left it.

    Args:
        run: a run with networks of the same shapes.
        checkpoint: the checkpoint.

    Raises:
        CheckpointError: the checkpoint is damaged or does not fit.
    """
    states = checkpoint.states()
    for role, module in (
        ("generator", run.generator.raw),
        ("discriminator", run.discriminator.raw),
        ("ema", run.ema.module),
        *_power_modules(run).items(),
    ):
        checkpoint.load_weights(role, module)
    run.generator.load_state_dict(states["generator"])
    run.discriminator.load_state_dict(states["discriminator"])
    run.ema.load_state_dict(states["ema"])
    run.power_ema.load_state_dict(states["power_ema"])
    run.augment.load_state_dict(states["augment"])
    for name, term in _remembering(run).items():  # one that is new starts without memory
        term.load_state_dict(states["penalties"].get(name, {}), run.accelerator.device)
    state = states["run"]
    run.step, run.images_seen = state["step"], state["images_seen"]
    run.rollbacks = state["rollbacks"]
    run.latest = {tag: value.to(run.accelerator.device) for tag, value in state["latest"].items()}
    run.stream.seek(state["images_read"] // run.config.batch_size)
    _apply_options(run)
    checkpoint.restore_random_state(run.accelerator.process_index)


def _power_modules(run: Run) -> dict[str, Any]:
    return {power_ema.role(width): module for width, module in run.power_ema.modules.items()}


def _remembering(run: Run) -> dict[str, Remembering]:
    return {name: term for name, term in run.terms.items() if isinstance(term, Remembering)}


def roll_back(run: Run, error: DivergenceError) -> None:
    """Go back to the newest checkpoint, with other latents and half the learning rates.

    Args:
        run: the run that diverged.
        error: how.

    Raises:
        DivergenceError: the run is not to roll back, has done so often enough, or has nothing to
            go back to.
    """
    config, rollbacks = run.config, run.rollbacks
    checkpoint = newest_checkpoint(checkpoints(run.folder))
    kept = (
        f"the last good checkpoint is {checkpoint.path}"
        if checkpoint
        else "nothing was saved before"
    )
    if config.on_divergence == "stop":
        raise DivergenceError(f"{error}; {kept}. Try a smaller lr, or a larger gamma") from error
    if rollbacks >= config.max_rollbacks or checkpoint is None:
        raise DivergenceError(f"{error}, after {rollbacks} rollbacks; {kept}") from error
    restore(run, checkpoint)
    run.rollbacks = rollbacks + 1
    _apply_options(run)
    _log.warning(
        "%s; back to step %d with fresh latents and learning rates times %g (rollback %d of %d)",
        error, run.step, 0.5**run.rollbacks, run.rollbacks, config.max_rollbacks,
    )  # fmt: skip


def _apply_options(run: Run) -> None:
    """Let today's options win over those that the optimizers' states brought along."""
    for player, options in (
        (run.generator, run.config.generator),
        (run.discriminator, run.config.discriminator),
    ):
        _apply(
            player, max(options.lr.values) * 0.5**run.rollbacks, options.beta1, options.weight_decay
        )


def _apply(player: Player, lr: float, beta1: float, weight_decay: float) -> None:
    scheduler: Any = player.scheduler
    scheduler.base_lrs = [lr for _ in scheduler.base_lrs]
    for group, factor in zip(player.optimizer.param_groups, scheduler.lr_lambdas, strict=True):
        group["lr"] = lr * factor(scheduler.last_epoch)
        if "betas" in group:
            group["betas"] = (beta1, group["betas"][1])
        if "weight_decay" in group:
            group["weight_decay"] = weight_decay


def _compare_data(run: Run, folder: Path, saved: dict[str, Any]) -> None:
    """Refuse other data. Files that were copied have other times, which is all that is known."""
    if run.data.fingerprint == saved["fingerprint"]:
        return
    data, here, there = run.config.data, len(run.data), saved["images"]
    if here != there or not Path(data).exists():
        raise ConfigError(
            f"data: {data} is not what {folder} was trained on ({here} images here, {there} "
            "there); give the same data, or start a new run"
        )
    _log.warning(
        "data: %s has as many images as %s was trained on, but its files are of another time: "
        "unless they are copies of those, this is another training", data, folder,
    )  # fmt: skip


def _changes(config: Config, checkpoint: Checkpoint) -> list[str]:
    """What is other than in the checkpoint; refuses what cannot be."""
    saved = Config.from_dict(checkpoint.manifest["config"])
    fixed = {
        *_FIXED,
        *(f"{role}.{name}" for role in ("generator", "discriminator") for name in _FIXED_NETWORK),
    }
    refused, changed = [], []
    for name, (now, before) in config.differences(saved).items():
        if name in fixed:
            refused.append(
                f"{name}: {now!r}, but the run was trained with {before!r}; it cannot change"
            )
        elif name not in ("name", "runs_dir", "version"):
            changed.append(f"{name}: {now!r}, was {before!r}")
    if refused:
        raise ConfigError(refused)
    return changed
