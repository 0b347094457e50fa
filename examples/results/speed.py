"""How the cost of a step grows, and what a second process brings; prints tables in Markdown.

    python examples/results/speed.py growth
    python examples/results/speed.py processes --presets digits fashion-mnist

Growth: the classic DCGAN with one size changed at a time, in turns in one process. Processes: one
with two threads against two with one each, on the same images a step, in turns.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import gan

BASE = {"resolution": 32, "batch_size": 32, "width": 32}
SIZES = {"resolution": (16, 32, 64), "batch_size": (16, 32, 64), "width": (16, 32, 64)}


def dcgan(resolution, batch_size, width):
    """A run of the preset dcgan64, of another size, on random images."""
    network = {"width": width}
    options = {"data": "fake:256", "resolution": str(resolution), "batch_size": batch_size}
    options |= {"generator": network, "discriminator": network}
    return gan.build(gan.Config.from_dict(options, gan.preset_config("dcgan64")))


def seconds(run, least):
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < least:
        gan.train_step(run)
        steps += 1
    return (time.perf_counter() - begin) / steps


def growth(arguments):
    sizes = [{**BASE, name: value} for name, values in SIZES.items() for value in values]
    sizes = [size for i, size in enumerate(sizes) if size not in sizes[:i]]
    runs = [dcgan(**size) for size in sizes]
    for run in runs:
        gan.train_step(run)  # allocates, and chooses its algorithms
    times = [[] for _ in runs]
    for _ in range(arguments.rounds):
        for run, mine in zip(runs, times, strict=True):
            mine.append(seconds(run, arguments.seconds))
    base = times[sizes.index(BASE)]
    print("| resolution | batch | width | ms a step | against the middle | images a second |")
    print("|---" * 6 + "|")
    for size, mine in zip(sizes, times, strict=True):
        ratios = [a / b for a, b in zip(mine, base, strict=True)]
        each = statistics.median(mine)
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        cells = [*size.values(), f"{1000 * each:.1f}", spread, f"{size['batch_size'] / each:.0f}"]
        print("| " + " | ".join(map(str, cells)) + " |")


def images_per_second(preset, data, processes, steps):
    """Of `gan train`, as TensorBoard has it, without the first of ten points."""
    batch = gan.preset_config(preset).batch_size // processes
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "gan", "train", preset, "--runs_dir", folder, "--batch_size", str(batch)]
        command += ["--steps", str(steps), "--log_every", str(steps // 10), "--num_workers", "0"]
        command += ["--sample_every", "None", "--save_every", "None"]
        command += ["--data", data] if data else []
        launcher = [sys.executable]
        if processes > 1:
            launcher += ["-m", "torch.distributed.run", f"--nproc_per_node={processes}"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(2 // processes)}
        done = subprocess.run(
            [*launcher, *command], env=environment, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stderr)
        (events,) = Path(folder).rglob("events.out.tfevents.*")
        points = EventAccumulator(str(events)).Reload().Scalars("time/images_per_second")
    return statistics.median(point.value for point in points[1:])


def processes(arguments):
    print("| preset | images a step | two processes / one |")
    print("|---" * 3 + "|")
    for preset in arguments.presets:
        ratios = []
        for _ in range(arguments.rounds):
            one, two = (
                images_per_second(preset, arguments.data, n, arguments.steps) for n in (1, 2)
            )
            ratios.append(two / one)
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {preset} | {gan.preset_config(preset).batch_size} | {spread} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["growth", "processes"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a slice of the growth")
    parser.add_argument("--presets", nargs="+", default=["digits", "fashion-mnist"])
    parser.add_argument("--data", help="instead of the presets' own, such as fake:256")
    parser.add_argument("--steps", type=int, default=400, help="of a training by processes")
    arguments = parser.parse_args()
    {"growth": growth, "processes": processes}[arguments.what](arguments)


if __name__ == "__main__":
    main()
