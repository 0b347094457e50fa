"""What people see of a run while it trains: progress, curves, grids of samples, the generator."""

from __future__ import annotations

import sys
import time
from types import TracebackType

import torch
import yaml
from tqdm import tqdm

from gan import sampling
from gan.export import save_generator
from gan.health import Health
from gan.run import Run
from gan.tracking import Tracker


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
        self._tracker = Tracker(run.accelerator, self._folder, start_step=run.step)
        self._bar = tqdm(
            total=run.config.steps,
            initial=run.step,
            unit="step",
            disable=not self._main,
            dynamic_ncols=True,
            mininterval=0.1 if sys.stderr.isatty() else 10.0,
        )
        self._clock = time.perf_counter(), run.images_seen
        real = self._real()
        self._health = Health(real)
        if run.step == 0 and self._main:
            options = yaml.safe_dump(run.config.to_dict(), sort_keys=False)
            self._tracker.text("config", f"```yaml\n{options}```")
            self._picture("real", real[: run.config.sample_num])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close both."""
        self._bar.close()
        self._tracker.close()

    def restart(self) -> None:
        """Show the run from another step on, after going back."""
        self._bar.n = self._run.step
        self._bar.refresh()
        self._tracker.close()
        self._tracker = Tracker(self._run.accelerator, self._folder, start_step=self._run.step)
        self._clock = time.perf_counter(), self._run.images_seen

    def progress(self) -> None:
        """Move the bar by one step."""
        self._bar.update()

    def scalars(self) -> None:
        """Write a point of every curve; all processes take part in the averages."""
        run = self._run
        values = {tag: value.item() for tag, value in run.scalars().items()}
        now = time.perf_counter(), run.images_seen
        speed = (now[1] - self._clock[1]) / max(now[0] - self._clock[0], 1e-9)
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
        values["ema/half_life"] = run.ema.half_life_at(run.images_seen, run.total_images)
        for penalty in run.config.penalties:
            values[f"weight/{penalty.name}"] = run.penalty_weight(penalty)
        values["time/images_per_second"] = speed
        self._tracker.scalars(values, run.step)
        self._health.after_scalars(values)

    def samples(self) -> None:
        """Write a grid of the averaged generator's samples, the same latents each time."""
        if self._main:
            run = self._run
            started = time.perf_counter()
            samples = sampling.sample(run.ema.module, range(run.config.sample_num))
            self._picture("ema", samples)
            variety = self._health.after_samples(samples)
            self._tracker.scalars({"samples/variety": variety}, run.step)
            # Sampling is no part of the training's speed.
            self._clock = self._clock[0] + time.perf_counter() - started, self._clock[1]

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
        self._run.accelerator.wait_for_everyone()

    def _real(self) -> torch.Tensor:
        run = self._run
        count = min(max(run.config.sample_num, 256), len(run.data))
        examples, _ = run.data.__getitems__(list(range(count)))
        return examples.float() / 127.5 - 1 if examples.dtype == torch.uint8 else examples

    def _picture(self, kind: str, images: torch.Tensor) -> None:
        columns = sampling.grid_columns(len(images), self._run.num_classes)
        picture = sampling.picture(images, columns)
        name = "real.png" if kind == "real" else f"step-{self._run.step:06d}.png"
        sampling.save_picture(self._folder / "samples" / name, picture)
        self._tracker.image(f"samples/{kind}", picture, self._run.step)
