"""Train a preset for so many minutes, score its samples, and print the rows of the ledger.

    python examples/results/measure.py fashion-mnist --minutes 4 --full --seeds 0 1 --baseline

The clock runs while the networks train, not while their samples are scored. The score is the
Frechet distance between the features of the averaged generator's samples and those of the test
set; the floor is that of as many training images. The baseline is the DCGAN of the tutorials, for
the same minutes on the same threads.
"""

import argparse
import dataclasses
import os
import platform
import time
from pathlib import Path

import torch

import gan
from gan.metrics import evaluate, open_features
from gan.presets import PRESETS
from gan.sampling import grid_columns, picture, save_picture

HERE = Path(__file__).parent
TUTORIAL = {  # Radford et al. 2016, as the tutorials of deep-learning libraries have it
    "loss": "non-saturating",
    "conditional": False,
    "batch_size": 128,
    "ema_half_life": 0,
    "generator": {"z_dim": 100, "width": 64},
    "discriminator": {"width": 64, "norm": "batch"},
}


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset", choices=sorted(PRESETS), metavar="PRESET")
    parser.add_argument("--minutes", type=float, nargs="*", default=[], help="score after so many")
    parser.add_argument("--full", action="store_true", help="train to the end, and score there")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--features", default="self")
    parser.add_argument(
        "--baseline",
        nargs="?",
        const="also",
        choices=["also", "only"],
        help="the tutorials' DCGAN too, or instead",
    )
    parser.add_argument("--resolution", default="64", help="of the baseline; it is scored smaller")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/gan-toolkit/metrics")
    parser.add_argument("--pictures", type=Path, default=HERE, help="folder for the grids")
    return parser.parse_args()


def unseen(config):
    """The test set; where there is none, the training set itself."""
    try:
        return gan.open_data(config.data, split="test", **config.opening())
    except gan.GanError:
        return gan.open_data(config.data, **config.opening())


class Scorer:
    """Scores generators, all under the same conditions."""

    def __init__(self, config, data, arguments):
        self.train, self.test = data, unseen(config)
        self.num, self.cache = arguments.samples, arguments.cache
        self.features = open_features(arguments.features, data, cache=self.cache, progress=True)

    def __call__(self, generator):
        about = {"num": self.num, "features": self.features, "cache": self.cache}
        separate = self.test.fingerprint != self.train.fingerprint
        floor = self.train if separate else None
        found = evaluate(generator, self.test, metrics=("fid",), held_out=floor, **about)
        scores = {"FD": found["values"]["fid"], "floor": (found["floor"] or {}).get("fid")}
        scores["rarest"] = self.rarest(generator)
        if separate:  # closer to the training images than unseen ones are?
            near = evaluate(generator, self.train, metrics=("fid",), held_out=self.test, **about)
            scores["nearest"] = near["nearest"]
        return scores

    def rarest(self, generator):
        """Share of the class that the feature network finds least often."""
        if not self.train.num_classes:
            return None
        found = []
        for start in range(0, self.num, 500):
            images = gan.sample(generator, range(start, min(start + 500, self.num)))
            pixels = ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
            found.append(self.features.extract(pixels)[1].argmax(1))
        counts = torch.bincount(torch.cat(found), minlength=self.train.num_classes)
        return counts.min().item() / self.num


def train(name, config, arguments, scorer=None):
    """Train one run, scoring it at each mark; prints a row for each."""
    run = gan.build(config)
    scorer = scorer or Scorer(config, run.data, arguments)
    marks, trained = sorted(60 * minutes for minutes in arguments.minutes), 0.0
    clock = time.perf_counter()
    while run.step < config.steps and (marks or arguments.full):
        gan.train_step(run)
        trained += time.perf_counter() - clock
        if (marks and trained >= marks[0]) or (arguments.full and run.step == config.steps):
            marks = [mark for mark in marks if mark > trained]
            report(name, run, trained, scorer, arguments)
        clock = time.perf_counter()
    return scorer


class Shrunk(torch.nn.Module):
    """A generator whose images are averaged down to the size that everything is scored at."""

    def __init__(self, generator, shape):
        super().__init__()
        self.generator, self.shape = generator, shape
        self.z_dim, self.num_classes = generator.z_dim, generator.num_classes

    def forward(self, z, labels=None):
        images = self.generator(z, labels)
        return torch.nn.functional.interpolate(images, self.shape[1:], mode="area")


def report(name, run, trained, scorer, arguments):
    generator, shape = run.ema.module, scorer.train.shape
    scores = scorer(generator if run.data.shape == shape else Shrunk(generator, shape).eval())
    grid = gan.sample(run.ema.module, range(run.config.sample_num))
    file = f"{name.replace(' ', '-')}-{trained / 60:.0f}min-seed{run.config.seed}.png"
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    save_picture(arguments.pictures / file, picture(grid, grid_columns(len(grid), run.num_classes)))

    def number(key, form=".3g"):
        return "" if scores.get(key) is None else format(scores[key], form)

    ratio = "" if not scores["floor"] else f"{scores['FD'] / scores['floor']:.1f}"
    accuracy = scorer.features.accuracy
    known = "" if accuracy is None else f", {accuracy:.1%} accurate"
    cells = (
        name,
        run.config.seed,
        f"{trained / 60:.1f} min, {run.step} steps",
        number("FD"),
        number("floor"),
        ratio,
        number("rarest", ".1%"),
        number("nearest", ".2f"),
        f"{scorer.num} against {len(scorer.test)} of {scorer.test.name}",
        f"{scorer.features.name}{known}",
        machine(),
        f"[grid]({file})",
    )
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def machine():
    return f"{torch.get_num_threads()} threads of {os.cpu_count()} {platform.machine()} cores"


def main():
    arguments = options()
    torch.set_num_threads(arguments.threads)
    scorer = None
    for seed in arguments.seeds:
        config = dataclasses.replace(gan.preset_config(arguments.preset), seed=seed)
        if arguments.baseline != "only":
            scorer = train(arguments.preset, config, arguments, scorer)
        if arguments.baseline:
            plain = {"data": config.data, "resolution": arguments.resolution, "seed": seed}
            base = gan.Config.from_dict({**TUTORIAL, **plain, "steps": 10**9})
            minutes = argparse.Namespace(**{**vars(arguments), "full": False})
            if scorer is None:
                data = gan.open_data(config.data, **config.opening())
                scorer = Scorer(config, data, arguments)
            train(f"tutorial DCGAN {arguments.resolution}", base, minutes, scorer)


if __name__ == "__main__":
    main()
