"""What people see of a run while it trains: progress, curves, grids of samples, the generator."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import yaml

from gan import sampling, serial
from gan.choice import suggest_gamma
from gan.export import save_generator
from gan.gallery import interpolate, nearest_picture
from gan.gauges import gauges, gradient_share, judged, some_real
from gan.health import Health
from gan.progress import progress_bar
from gan.results import Evaluations, describe_generator, held_out, mark_as_running
from gan.run import Run
from gan.tracking import Tracker

_STRIP_SEEDS, _STRIP_FRAMES = 5, 8
_NEAREST_SAMPLES = 16
_NEAREST_VALUES = 2**26
"""Neighbours are looked for in data of at most so many values, which takes less than a second."""

_NO_HPARAMS = {
    *("version", "name", "runs_dir", "data_root", "cache", "cache_limit", "skip_unreadable"),
    *("num_workers", "log_every", "sample_every", "sample_num", "save_every", "keep"),
    *("evaluate_every", "evaluate_features", "evaluate_num", "on_divergence", "max_rollbacks"),
}
"""Options that decide nothing about the generator: runs are not compared by them."""


class Reporter:
    """Shows a run. On processes other than the main one it shows nothing, but takes part."""

    def __init__(self, run: Run) -> None:
        """Prepare to show a run.

        Args:
            run: a run with a folder.
        """
        assert run.folder is not None, "the run has no folder yet"
        self._run, self._folder = run, run.folder
        self._main = run.accelerator.is_main_process

    def __enter__(self) -> Reporter:
        """Open the event file and the progress bar; a new run shows its options and its data."""
        run = self._run
        self._evaluations = None if run.config.evaluate_every is None else Evaluations(run)
        self._tracker = Tracker(run.accelerator, self._folder, start_step=run.step)
        self._bar = progress_bar(
            total=run.config.steps,
            initial=run.step,
            unit="step",
            disable=not self._main,
        )
        self._clock = time.perf_counter(), run.step
        real, labels = some_real(run.data, max(run.config.sample_num, 256), run.num_classes)
        few = torch.arange(min(run.config.batch_size, 64)) % len(real)  # as in a batch, repeated
        self._some = real[few], labels[few]
        size, batch = run.data.shape[1:], run.images_per_update
        fits = bool(size) and all(32 <= side <= 256 for side in size)
        self._health = Health(real, suggest_gamma(size, batch) if fits else None)
        self._held_out: tuple[torch.Tensor, torch.Tensor] | None = None
        if self._main:
            mark_as_running(self._folder)
            unseen = held_out(run.config, run.data)
            self._held_out = None if unseen is None else some_real(unseen, 256)
        if run.step == 0 and self._main:
            options = run.config.to_dict()
            text = yaml.safe_dump(options, sort_keys=False)
            self._tracker.text("config", f"```yaml\n{text}```")
            plain = serial.flatten(options).items()
            self._tracker.hparams({name: value for name, value in plain if name not in _NO_HPARAMS})
            self._picture("real", real[: run.config.sample_num])
        self._clock = time.perf_counter(), run.step
        return self

    def __exit__(self, *error: object) -> None:
        """Close both."""
        self._bar.close()
        self._tracker.close()
        if self._main:
            mark_as_running(self._folder, False)

    def restart(self) -> None:
        """Show the run from another step on, after going back."""
        self._bar.n = self._run.step
        self._bar.refresh()
        self._tracker.close()
        self._tracker = Tracker(self._run.accelerator, self._folder, start_step=self._run.step)
        self._run.stopwatch.read()
        self._clock = time.perf_counter(), self._run.step

    def progress(self) -> None:
        """Move the bar by one step."""
        self._bar.update()

    def scalars(self) -> None:
        """Write a point of every curve; all processes take part in the averages."""
        run = self._run
        values = {tag: value.item() for tag, value in run.scalars().items()}
        now = time.perf_counter(), run.step
        steps, seconds = now[1] - self._clock[1], max(now[0] - self._clock[0], 1e-9)
        speed = steps * run.config.n_critic * run.images_per_update / seconds
        self._clock = now
        self._bar.set_postfix(
            D=f"{values['loss/discriminator']:.3f}",
            G=f"{values['loss/generator']:.3f}",
            images_per_s=f"{speed:.0f}",
            refresh=False,
        )
        for player in (run.generator, run.discriminator):
            values[f"lr/{player.name}"] = player.lr
            betas = player.optimizer.param_groups[0].get("betas")
            if betas is not None:
                values[f"beta2/{player.name}"] = betas[1]
            if player.scaler is not None:
                values[f"scale/{player.name}"] = player.scaler.get_scale()
                values[f"skipped/{player.name}"] = player.skipped
                self._health.after_updates(player.name, player.updates, player.skipped)
        values["ema/half_life"] = run.ema.half_life_at(run.images_seen, run.total_images)
        if run.config.augment != "none":
            values["augment/strength"] = run.augment.strength
        for penalty in (*run.config.penalties, *run.config.generator_penalties):
            values[f"weight/{penalty.name}"] = run.penalty_weight(penalty)
        values["time/images_per_second"] = speed
        for phase, total in run.stopwatch.read().items():
            values[f"time/{phase}"] = total / max(steps, 1)
        if self._main:
            values |= gauges(run, values)
        self._tracker.scalars(values, run.step)
        self._health.after_losses(values["loss/discriminator"], values["loss/generator"])
        self._health.after_scalars(values)

    def samples(self) -> None:
        """Write a grid of the averaged generator's samples, the same latents each time."""
        if not self._main:
            return
        run = self._run
        with self._pause("sampling"):
            samples = sampling.sample(run.ema.module, range(run.config.sample_num))
            self._picture("ema", samples)
            values = {"samples/variety": self._health.after_samples(samples)}
            if self._held_out is not None:
                values |= judged(run, *self._held_out)
            # Batch norm that is shared would wait for the other processes.
            if run.config.penalties and not run.config.sync_batch_norm:
                values["penalty_share/gradient"] = gradient_share(run, *self._some)
            self._tracker.scalars(values, run.step)
            if len(run.data.shape) == 3:
                strip = interpolate(run.ema.module, range(_STRIP_SEEDS), frames=_STRIP_FRAMES)
                self._show("samples/interpolation", sampling.picture(strip, _STRIP_FRAMES))
                if len(run.data) * math.prod(run.data.shape) <= _NEAREST_VALUES:
                    neighbours = nearest_picture(samples[:_NEAREST_SAMPLES], run.data)
                    self._show("samples/nearest", neighbours)

    def evaluation(self) -> dict[str, Any] | None:
        """Evaluate; all processes take part.

        Returns:
            The evaluation where no step before was better, else None.
        """
        assert self._evaluations is not None, "the run has no evaluate_every"
        with self._pause("evaluation"):
            entry, better = self._evaluations(self._run)
            values = {f"metrics/{name}": value for name, value in entry["values"].items()}
            self._tracker.scalars(values, self._run.step)
        return entry if better else None

    def finish(self) -> None:
        """Leave the averaged generator in a form that needs neither the run nor its options."""
        if self._main:
            run = self._run
            save_generator(
                self._folder / "generator",
                run.ema.module,
                family=run.config.generator.architecture,
                shape=run.data.shape,
                options=run.generator_options,
                extra={"class_names": list(run.data.class_names), "step": run.step},
            )
            samples = sampling.sample(run.ema.module, range(run.config.sample_num))
            columns = sampling.grid_columns(len(samples), run.num_classes)
            picture = sampling.picture(samples, columns)
            sampling.save_picture(self._folder / "generator" / "samples.png", picture)
            describe_generator(self._folder, run.config)
        self._run.accelerator.wait_for_everyone()

    @contextmanager
    def _pause(self, what: str) -> Iterator[None]:
        """What happens inside is no part of the training's speed, but has a curve of its own."""
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        self._tracker.scalars({f"time/{what}": seconds}, self._run.step)
        self._clock = self._clock[0] + seconds, self._clock[1]

    def _show(self, tag: str, picture: torch.Tensor) -> None:
        self._tracker.image(tag, picture, self._run.step)

    def _picture(self, kind: str, images: torch.Tensor) -> None:
        columns = sampling.grid_columns(len(images), self._run.num_classes)
        picture = sampling.picture(images, columns)
        name = "real.png" if kind == "real" else f"step-{self._run.step:06d}.png"
        sampling.save_picture(self._folder / "samples" / name, picture)
        self._show(f"samples/{kind}", picture)
