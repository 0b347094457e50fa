"""Losses x regularisers on the ring of eight Gaussians, or the grid of 25: which modes are covered.

    python examples/results/losses.py --data ring --steps 2000

Prints a table in Markdown: covered modes, and the share of samples within five standard deviations
of a mode. A mode is covered when at least a fifth of its fair share of the samples is there.
"""

import argparse
import dataclasses
import sys
import time

import torch

import gan
from gan.data.sources_made import POINTS_SCALE, POINTS_STD, centres

REGULARISERS = {
    "none": {},
    "r1": {"penalties": ["r1"]},
    "r1 r2": {"penalties": ["r1", "r2"]},
    "wgan-gp": {"penalties": ["wgan-gp=0.1"]},
    "wgan-gp-one-sided": {"penalties": ["wgan-gp-one-sided=1"]},
    "dragan": {"penalties": ["dragan=0.1"]},
    "zero-centered-gp": {"penalties": ["zero-centered-gp=0.1"]},
    "lecam": {"penalties": ["lecam"]},
    "clipped weights": {"discriminator": {"clip_weights": 0.1}},
}


# What differs from the preset `ring`: 25 small modes want a larger, less restrained discriminator.
LARGER = {"hidden": [128, 128, 128], "lr": "0.002..0.0001,cosine"}
DATA = {"ring": {}, "grid": {"gamma": 0.002, "generator": LARGER, "discriminator": LARGER}}


def covered(points, data):
    """How many modes have a fifth of their share, and which share of the points is near a mode."""
    means = centres(data)
    distance, nearest = torch.cdist(points, means).min(dim=1)
    near = distance < 5 * POINTS_STD / POINTS_SCALE[data]
    counts = torch.bincount(nearest[near], minlength=len(means))
    return int((counts > len(points) / len(means) / 5).sum()), near.float().mean().item()


def trained(loss, regulariser, arguments):
    base = dataclasses.replace(gan.preset_config("ring"), penalties=(), data=arguments.data)
    base = gan.Config.from_dict(DATA[arguments.data], base)
    changes = {"loss": loss, "steps": arguments.steps, **REGULARISERS[regulariser]}
    run = gan.build(gan.Config.from_dict(changes, base))
    while run.step < arguments.steps:
        gan.train_step(run)
    return gan.sample(run.ema.module, range(2500))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=sorted(POINTS_SCALE), default="ring")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--losses", nargs="+", default=list(gan.LOSSES), choices=list(gan.LOSSES))
    parser.add_argument("--regularisers", nargs="+", default=list(REGULARISERS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| loss | " + " | ".join(arguments.regularisers) + " |")
    print("|---" * (1 + len(arguments.regularisers)) + "|")
    longest = 0.0
    for loss in arguments.losses:
        cells = []
        for name in arguments.regularisers:
            begin = time.perf_counter()
            modes, share = covered(trained(loss, name, arguments), arguments.data)
            longest = max(longest, time.perf_counter() - begin)
            cells.append(f"{modes}, {share:.0%}")
        print(f"| {loss} | " + " | ".join(cells) + " |", flush=True)
    print(f"each in at most {longest:.0f} seconds on one thread", file=sys.stderr)


if __name__ == "__main__":
    main()
