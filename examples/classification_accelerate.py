"""Fine-tune a transformer that classifies texts, on Accelerate.

The same training in three ways, to be read side by side:

    diff --side-by-side classification_pure_pytorch.py classification_accelerate.py
    diff --side-by-side classification_pure_pytorch.py classification_trainer.py

Texts, tokenizer and model come from the toolkit in all three, so that they differ in the loop only.
README.md walks through the differences.

This one also runs in several processes and in mixed precision (`accelerate launch`, `torchrun`).
"""

import argparse
import math
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.nn.functional import cross_entropy
from torch.optim import Adam
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, get_linear_schedule_with_warmup

from gan.text_classification import TextConfig, prepare


def train(
    model, tokenizer, train_texts, validation_texts, max_length, epochs, batch_size, lr, seed
):
    """Train the model, and say how well it does on the validation texts."""
    accelerator = Accelerator(
        cpu=not torch.accelerator.is_available(),  # several processes on CPUs have to be told
        step_scheduler_with_optimizer=False,  # it would move once for each process
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=seed),
    )
    set_seed(seed, device_specific=True)  # of the dropout, which differs between processes
    # Each text is padded to max_length: simple, and the first thing that can be done better.
    pad = DataCollatorWithPadding(tokenizer, padding="max_length", max_length=max_length)
    options = {"collate_fn": pad, "generator": torch.Generator()}  # leaves the dropout's alone
    train_loader = DataLoader(train_texts, batch_size, shuffle=True, **options)
    validation_loader = DataLoader(validation_texts, batch_size, **options)
    steps = epochs * math.ceil(len(train_loader) / accelerator.num_processes)
    optimizer = Adam(model.parameters(), lr)
    scheduler = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    model, optimizer, scheduler, train_loader, validation_loader = accelerator.prepare(
        model, optimizer, scheduler, train_loader, validation_loader
    )

    for epoch in range(epochs):
        model.train()
        for batch in train_loader:
            optimizer.zero_grad()
            labels = batch.pop("labels")
            logits = model(**batch).logits
            loss = cross_entropy(logits, labels)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()

        model.eval()
        right = 0
        for batch in validation_loader:
            labels = batch.pop("labels")
            with torch.no_grad():
                guesses = model(**batch).logits.argmax(dim=1)
            guesses, labels = accelerator.gather_for_metrics((guesses, labels))
            right += (guesses == labels).sum().item()
        accuracy = right / len(validation_texts)
        accelerator.print(
            f"epoch {epoch + 1}: loss {loss.item():.4f}, validation accuracy {accuracy:.4f}"
        )


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
