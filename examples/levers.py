"""What each lever of efficient training does to time and memory, measured here and now.

    python examples/levers.py --model FOLDER         (a pretrained model; small: one built here)

Every line is an epoch over the same texts, in processes of its own. Memory is what training adds
to the model: gradients, the optimizer's state, and what the forward pass keeps for the backward.
"""

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch

from gan.text_classification import TextConfig, build, prepare, train_step

LEVERS = {
    "every text padded to the limit": {"padding": "max", "group_by_length": False},
    "padded to the longest of its batch": {"group_by_length": False},
    "batches of similar length": {},
    "2 processes": {"processes": 2, "batch_size": 4},
    "4 micro-batches of 2": {"batch_size": 2, "gradient_accumulation_steps": 4},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "bf16": {"mixed_precision": "bf16"},
    "AdamW": {"optimizer": "AdamW"},
    "Adafactor": {"optimizer": "Adafactor"},
    "8-bit Adam": {"optimizer": "Adam8bit"},
}


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="small")
    parser.add_argument("--texts", type=int, default=192)
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--lever", choices=LEVERS, help="measure one, and print it as JSON")
    parser.add_argument("--file", type=Path, help="texts to measure it with")
    args = parser.parse_args(words)
    if args.lever:
        measure(args.lever, args.model, args.max_length, args.file)
        return

    print(f"{'':<36} {'texts/s':>8} {'speed':>6} {'MiB':>6} {'memory':>6}")
    first = None
    with tempfile.TemporaryDirectory() as folder:
        file = write_texts(Path(folder) / "texts.csv", args.texts)
        for lever in LEVERS:
            found = in_a_process(lever, args.model, args.max_length, file)
            if "problem" in found:
                print(f"{lever:<36} {found['problem']}")
                continue
            first = first or found
            speed, memory = (found[key] / first[key] for key in ("speed", "memory"))
            numbers = f"{found['speed']:8.1f} {speed:5.2f}x {found['memory']:6.0f} {memory:5.2f}x"
            print(f"{lever:<36} {numbers}", flush=True)


def write_texts(path, count):
    """Some docstrings of Python's library, of all lengths."""
    data = prepare(TextConfig()).data
    rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))[:count]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row in rows.tolist():
            writer.writerow([*data.train.texts[row], data.class_names[data.train.labels[row]]])
    return path


def in_a_process(lever, model, max_length, file):
    """What one lever does, or why it cannot be had. Once for the time, once for the memory."""
    start = [sys.executable]
    if "processes" in LEVERS[lever]:
        start += ["-m", "torch.distributed.run", f"--nproc_per_node={LEVERS[lever]['processes']}"]
    options = [f"--lever={lever}", f"--model={model}", f"--max_length={max_length}"]
    found = {}
    for what in ("speed", "memory"):
        # By itself, the C library gives back little of the memory that is free again.
        give_back = {"MALLOC_MMAP_THRESHOLD_": "65536"} if what == "memory" else {}
        done = subprocess.run(
            [*start, __file__, *options, f"--file={file}"],
            env={"OMP_NUM_THREADS": "1", **os.environ, **give_back},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return {"problem": done.stderr.splitlines()[-1]}
        found[what] = json.loads(done.stdout)[what]
    return found


def measure(lever, model, max_length, file):
    options = {name: value for name, value in LEVERS[lever].items() if name != "processes"}
    options = {"model": model, "max_length": max_length, "batch_size": 8, **options}
    run = build(TextConfig(train_file=file, validation_file=file, epochs=1, **options))
    before = peak_memory()
    train_step(run.accelerator, run.classifier, next(run.windows()))  # the first one is slower
    begin = clock()
    for window in islice(run.windows(), run.order.windows):
        train_step(run.accelerator, run.classifier, window)
    speed = len(run.examples["train"]) / (clock() - begin)
    if run.accelerator.is_main_process:
        print(json.dumps({"speed": speed, "memory": peak_memory() - before}))


def clock():
    """Seconds; on CPUs only those in which this process works, whatever else the machine does."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def peak_memory():
    """The most that this process has held, in MiB."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


if __name__ == "__main__":
    main()
