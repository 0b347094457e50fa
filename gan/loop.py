"""The loop: alternate the two steps, keep the average, report and save when it is due."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate.utils import broadcast_object_list
from accelerate.utils.memory import should_reduce_batch_size
from torch import Tensor

from gan.chance import Chance
from gan.checkpoint import newest_checkpoint
from gan.config import Config
from gan.errors import DivergenceError, GanError
from gan.guard import Guard
from gan.optimizers import set_beta2
from gan.report import Reporter
from gan.results import check_evaluations, keep_best
from gan.run import Run, build
from gan.signals import stop_signals
from gan.state import checkpoints, restore, roll_back, save
from gan.steps import MicroBatch, discriminator_step, generator_step
from gan.tracking import create_run_dir


def train(config: Config) -> Path:
    """Train a generator and a discriminator from scratch.

    Args:
        config: what to do; `gan.preset_config("digits")` gives one.

    Returns:
        The run folder.

    Raises:
        GanError: the configuration, the data or the run folder cannot be used, or the training
            diverged.
    """
    run = build(config)
    start(run)
    fit(run)
    assert run.folder is not None
    return run.folder


def train_step(run: Run) -> dict[str, Tensor]:
    """One step: `n_critic` updates of the discriminator, one of the generator, the average.

    Args:
        run: the run; advances by one step.

    Returns:
        Detached scalars of this process, by TensorBoard tag.
    """
    config, accelerator, phase = run.config, run.accelerator, run.stopwatch.phase
    measure = not run.latest or is_shown(run, run.step + 1)
    controlled = run.augment.schedule is None  # by the signs of each update

    for critic in range(config.n_critic):
        with phase("data"):
            reals = [next(run.stream) for _ in range(config.gradient_accumulation_steps)]
            batches = _window(run, reals, f"discriminator {critic}")
        last = critic == config.n_critic - 1
        if config.reuse_fakes and last and len(batches) == 1:
            with phase("generator"):
                fake = run.generator.ahead(*batches[0].inputs)
                batches = [dataclasses.replace(batches[0], fake=fake)]
        set_beta2(
            run.discriminator.optimizer,
            config.discriminator.beta2.at(run.images_seen, run.total_images),
        )
        run.augment.follow(run.images_seen, run.total_images)
        with phase("discriminator"):
            scalars = discriminator_step(
                accelerator,
                run.generator,
                run.discriminator,
                batches,
                run.loss,
                penalties=run.due_penalties(),
                augment=run.augment,
                measure=measure or controlled,
                joint=config.joint_forward,
            )
            run.after_discriminator(scalars)

    if not config.reuse_fakes:
        with phase("data"):
            batches = _window(run, reals, "generator")
    set_beta2(run.generator.optimizer, config.generator.beta2.at(run.images_seen, run.total_images))
    updates = run.generator.updates
    with phase("generator"):
        scalars |= generator_step(
            accelerator,
            run.generator,
            run.discriminator,
            batches,
            run.loss,
            penalties=run.due_generator_penalties(),
            augment=run.augment,
            measure=measure,
        )
        run.after_generator(scalars)

    if run.generator.updates > updates:  # not where fp16 skipped the update
        with phase("average"):
            run.ema.update(run.generator.raw, run.images_seen, run.total_images)
            run.power_ema.update(run.generator.raw, run.images_seen)

    run.step += 1
    return scalars


def _window(run: Run, reals: list[tuple[Tensor, Tensor]], phase: str) -> list[MicroBatch]:
    """Real micro-batches with the latents and the chance of one update of one network."""
    accelerator, size = run.accelerator, run.config.batch_size
    key = (run.config.seed, run.rollbacks, run.step, phase)
    batches = []
    for i, (real, labels) in enumerate(reals):
        # The stream deals batch n to process n mod num_processes: so are the latents dealt.
        begin = (i * accelerator.num_processes + accelerator.process_index) * size
        chance = Chance(key, begin, begin + size, accelerator.device)
        z = chance.normal("z", run.config.generator.z_dim)
        condition = (labels,) if run.num_classes else ()
        batches.append(MicroBatch(real, (z, *condition), condition, chance))
    return batches


def start(run: Run) -> None:
    """Give a new run its folder, with `config.yaml` in it.

    Where torchrun restarted the processes, it is the folder that they had, and the run goes on
    from its newest checkpoint.

    Args:
        run: a run at step 0.

    Raises:
        GanError: the folder cannot be made, there is a run in it, or the run cannot be evaluated
            as it asks for.
    """
    check_evaluations(run)
    answer: list[tuple[Path | None, str]] = [(None, "")]
    if run.accelerator.is_main_process:
        try:
            answer = [(_before_restart(run.config.runs_dir) or _new_folder(run.config), "")]
        except GanError as error:
            answer = [(None, str(error))]
    broadcast_object_list(answer)
    run.folder, problem = answer[0]
    if problem:
        raise GanError(problem)
    if (checkpoint := newest_checkpoint(checkpoints(run.folder))) is not None:
        restore(run, checkpoint)


def _new_folder(config: Config) -> Path:
    folder = create_run_dir(config.runs_dir, config.preset, config.name)
    try:
        config.save(folder / "config.yaml")
        if launch := _launch():
            (folder / ".launch").write_text(launch, encoding="utf-8")
    except (GanError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)  # nothing half-made
        raise GanError(f"--runs_dir: {error}; free some space or choose another") from None
    return folder


def _launch() -> str:
    """Name of this launch by torchrun, the same after it restarted the processes; else empty."""
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"{run_id} {os.getppid()}" if run_id else ""


def _before_restart(runs_dir: Path) -> Path | None:
    """Folder that this launch trained in before torchrun restarted its processes."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        return None
    marks = [path for path in runs_dir.glob("*/.launch") if path.read_text() == _launch()]
    return max(marks, key=lambda path: path.stat().st_mtime).parent if marks else None


def fit(run: Run) -> int:
    """Train to the end of the run, or until a signal asks to stop.

    Args:
        run: a run with a folder, at any step.

    Returns:
        0 at the end of the run; after a signal, and a checkpoint, the signal's number.

    Raises:
        DivergenceError: a number stopped being finite; the last good checkpoint is kept.
        CheckpointError: a checkpoint could not be written.
    """
    config, guard = run.config, Guard(run)
    # The reporter first: while it trains a feature network there is nothing that a signal may save.
    with Reporter(run) as report, stop_signals() as received, _explained_out_of_memory(run):
        if config.on_divergence == "rollback" and run.step == 0:
            save(run)  # something to go back to
        while run.step < config.steps:
            try:
                scalars = train_step(run)
                run.latest |= scalars
                stop = guard.after_step(scalars, stop=received.number)
                last = run.step == config.steps

                report.progress()
                if is_shown(run, run.step):
                    report.scalars()
                if due(config.sample_every, run.step) or last:
                    report.samples()
                evaluation = None
                if due(config.evaluate_every, run.step) or (config.evaluate_every and last):
                    guard.settle()
                    evaluation = report.evaluation()
                if due(config.save_every, run.step) or last or stop or evaluation:
                    guard.settle()
                    checkpoint = save(run)
                    if evaluation:
                        keep_best(run, checkpoint, evaluation)
                if stop:
                    return stop
            except DivergenceError as error:
                roll_back(run, error)
                report.restart()
        report.finish()
    return 0


@contextmanager
def _explained_out_of_memory(run: Run) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not should_reduce_batch_size(error):
            raise
        config = run.config
        raise GanError(
            f"out of memory on {run.accelerator.device} in step {run.step + 1} with batch_size "
            f"{config.batch_size}, images of {tuple(run.data.shape)} and mixed_precision "
            f"{config.mixed_precision}; try half the batch_size with twice the "
            "gradient_accumulation_steps (the same training), --mixed_precision bf16, or a "
            "smaller resolution or width"
        ) from error


def probe(run: Run, seconds: float = 2.0) -> float:
    """Time some steps of a run that is thrown away afterwards.

    Args:
        run: a fresh run; its networks train.
        seconds: about how long to time, after two steps of warming up.

    Returns:
        Seconds of one step.
    """
    begin = time.perf_counter()
    for _ in range(2):
        train_step(run)
    # All processes take as many steps, whatever their clocks say.
    each = (time.perf_counter() - begin) / 2
    agreed = [max(3, min(1000, round(seconds / each)))]
    broadcast_object_list(agreed)
    steps, begin = agreed[0], time.perf_counter()
    for _ in range(steps):
        scalars = train_step(run)
    torch.stack([value.double() for value in scalars.values()]).sum().item()  # wait for the device
    return (time.perf_counter() - begin) / steps


def is_shown(run: Run, step: int) -> bool:
    """Whether a step is a point of the curves.

    Args:
        run: the run.
        step: completed steps.

    Returns:
        True if so.
    """
    return due(run.config.log_every, step) or step == run.config.steps


def due(every: int | None, step: int) -> bool:
    """Whether something that happens every so many steps happens now.

    Args:
        every: steps between two times; None: never.
        step: completed steps.

    Returns:
        True if so.
    """
    return every is not None and step % every == 0
