"""Fine-tune a transformer that classifies texts, with Trainer.

The same training in three ways, to be read side by side:

    diff --side-by-side classification_pure_pytorch.py classification_accelerate.py
    diff --side-by-side classification_pure_pytorch.py classification_trainer.py

Texts, tokenizer and model come from the toolkit in all three, so that they differ in the loop only.
README.md walks through the differences.

This one runs in whatever Trainer runs in, and hides the loop.
"""

import argparse
import math
import tempfile
from pathlib import Path

import torch
from torch.optim import Adam
from transformers import (
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    get_linear_schedule_with_warmup,
)

from gan.text_classification import TextConfig, prepare


def train(
    model, tokenizer, train_texts, validation_texts, max_length, epochs, batch_size, lr, seed
):
    """Train the model, and say how well it does on the validation texts."""
    # Each text is padded to max_length: simple, and the first thing that can be done better.
    pad = DataCollatorWithPadding(tokenizer, padding="max_length", max_length=max_length)
    steps = epochs * math.ceil(len(train_texts) / batch_size)
    optimizer = Adam(model.parameters(), lr)
    scheduler = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            TrainingArguments(
                folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=batch_size,
                per_device_eval_batch_size=batch_size,
                max_grad_norm=0.0,  # Trainer clips to 1 unless told not to
                seed=seed,  # of the dropout
                data_seed=seed,
                eval_strategy="epoch",
                logging_strategy="epoch",
                save_strategy="no",
                report_to="none",
                use_cpu=not torch.cuda.is_available(),
            ),
            data_collator=pad,
            train_dataset=train_texts,
            eval_dataset=validation_texts,
            compute_metrics=accuracy,
            optimizers=(optimizer, scheduler),
        )
        trainer.train()


def accuracy(evaluated):
    return {"accuracy": (evaluated.predictions.argmax(axis=1) == evaluated.label_ids).mean()}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="folder or hub name; none: a small one is built")
    parser.add_argument(
        "--train_file", type=Path, help="CSV, TSV, JSON lines; none: Python's docstrings"
    )
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--max_length", type=int)
    config = TextConfig(**vars(parser.parse_args(arguments))).check()

    ready = prepare(config)
    train(
        ready.model,
        ready.tokenizer,
        ready.examples["train"],
        ready.examples["validation"],
        ready.max_length,
        config.epochs,
        config.batch_size,
        config.lr,
        config.seed,
    )


if __name__ == "__main__":
    main()
