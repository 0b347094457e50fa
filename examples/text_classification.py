"""Train a transformer that tells classes of texts apart, evaluate it, save it, use it.

python examples/text_classification.py                      (no data, no download)
python examples/text_classification.py --model FOLDER --train_file spam.csv
python examples/text_classification.py --dataset glue/mrpc  (with the extra "hub")
python examples/text_classification.py --resume runs/text-001
torchrun --nproc_per_node 2 examples/text_classification.py
"""

import argparse
import csv
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from tqdm.contrib.logging import logging_redirect_tqdm

from gan import GanError
from gan.text_classification import (
    TextConfig,
    build,
    evaluate,
    fit,
    load_best,
    predict_logits,
    resume,
    saved_config,
    start,
)


@dataclass(frozen=True)
class Arguments:
    options: Annotated[TextConfig, tyro.conf.arg(name="")]
    resume: Path | None = None
    """Go on with the run in this folder; options given beside it change its options."""


def main(words=None):
    """Run the command line; 0: done, 2: a mistake that the message explains, 128 + n: signal n."""
    words = sys.argv[1:] if words is None else words
    logging.basicConfig(format="%(message)s")
    logging.getLogger("gan").setLevel(logging.INFO if is_main_process() else logging.ERROR)
    try:
        with logging_redirect_tqdm():
            return run_command(words)
    except GanError as error:
        if is_main_process():
            print(f"error: {error}", file=sys.stderr)
        return 2


def run_command(words):
    arguments = parse(words)
    if arguments.resume:
        run = resume(arguments.resume, arguments.options)
        say(f"going on from step {run.step} of {run.steps}")
    else:
        run = build(arguments.options)
        start(run)
    describe(run)

    number = fit(run)
    if number:
        say(f"stopped at step {run.step}, all saved; go on with --resume {run.folder}")
        return 128 + number
    report(run)
    return 0


def parse(words):
    """All options are flags; those of a run that goes on start from what it was made with."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--resume", type=Path)
    folder = first.parse_known_args(words)[0].resume
    defaults = TextConfig() if folder is None else saved_config(folder)
    return tyro.cli(
        Arguments,
        description=__doc__,
        args=words,
        default=Arguments(defaults, folder),
        use_underscores=True,
    )


def describe(run):
    """What was detected, where the model went, and what the model is."""
    accelerator, data = run.accelerator, run.data
    say(run.model.config)
    kind = accelerator.device.type
    what = torch.cuda.get_device_name() if kind == "cuda" else f"{torch.get_num_threads()} threads"
    precision = {"no": "fp32"}.get(run.config.mixed_precision, run.config.mixed_precision)
    say(
        f"detected:  {accelerator.num_processes} x {kind} ({what}), {precision}\n"
        f"model:     {run.config.model}, {run.model.num_parameters():,} parameters, "
        f"on {run.model.device}\n"
        f"texts:     {data.name}: {len(data.train):,} to learn from, {len(data.validation):,} to "
        f"judge by; {len(data.class_names)} classes: {', '.join(data.class_names)}\n"
        f"training:  {run.steps:,} updates of {run.order.size} texts\n"
        f"run:       {run.folder}"
    )


def report(run):
    """Judge the best model, and classify the texts that have no class."""
    load_best(run)
    for part in ("validation", "test"):
        if part in run.examples and "label" in run.examples[part][0]:
            say(f"\n{part}, with the best model (step {run.best_step}):")
            say(table(evaluate(run, part), run.data))
    if run.data.test:
        probabilities = predict_logits(run, "test").softmax(dim=1)
        if run.accelerator.is_main_process:
            write_predictions(run, probabilities)
    texts = min(run.step * run.order.size, run.step * len(run.data.train) / run.order.windows)
    if run.seconds:
        say(f"\ntrained:   {texts / run.seconds:.0f} texts a second; {memory(run)}")
    say(
        f"model:     {run.output_dir} (AutoModelForSequenceClassification.from_pretrained)\n"
        f"watch it:  tensorboard --logdir {run.folder.parent}"
    )


def table(scores, data):
    """The scores, and how often a text of a class (row) was taken for another (column)."""
    majority = scores.confusion.sum(axis=1).max() / scores.confusion.sum()
    lines = [
        f"  accuracy {scores.accuracy:.3f} (always the most frequent class: {majority:.3f}), "
        f"F1 {scores.f1:.3f}, Matthews {scores.matthews:.3f}, loss {scores.loss:.3f}"
    ]
    width = max(7, *map(len, data.class_names))
    lines.append(" ".join(f"{name[:width]:>{width}}" for name in ("", *data.class_names)))
    for name, row in zip(data.class_names, scores.confusion, strict=True):
        lines.append(" ".join([f"{name:>{width}}", *(f"{count:>{width}}" for count in row)]))
    return "\n".join(lines)


def write_predictions(run, probabilities):
    path = run.folder / "predictions.csv"
    names = run.data.class_names
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        columns = ["text"] if len(run.data.test.texts[0]) == 1 else ["text1", "text2"]
        writer.writerow([*columns, "prediction", *names])
        for text, row in zip(run.data.test.texts, probabilities.tolist(), strict=True):
            best = names[row.index(max(row))]
            writer.writerow([*text, best, *(f"{probability:.6f}" for probability in row)])
    say(f"\npredicted: {path}")


def memory(run):
    """The most that this process has held at a time."""
    if run.accelerator.device.type == "cuda":
        return f"{torch.cuda.max_memory_allocated() / 2**20:,.0f} MiB of the GPU at most"
    try:
        import resource
    except ImportError:  # Windows
        return "on the CPU"
    unit = 1 if sys.platform == "darwin" else 1024
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20:,.0f} MiB at most"


def is_main_process():
    return os.environ.get("RANK", "0") == "0"


def say(text):
    if is_main_process():
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
