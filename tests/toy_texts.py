"""Texts of two or three classes, and transformers so small that a whole training takes a second."""

from __future__ import annotations

import csv
import itertools
import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from gan.text.config import TextConfig

WORDS = {
    "food": ["apple", "bread", "cheese", "soup", "salt", "butter"],
    "sport": ["ball", "goal", "race", "team", "swim", "score"],
    "tools": ["hammer", "saw", "nail", "drill", "screw", "wrench"],
}
FILLER = ["the", "a", "of", "and", "very", "often", "with", "some", "new", "old"]


def sentences(
    count: int, classes: int = 2, longest: int = 20, seed: int = 0
) -> list[tuple[str, str]]:
    """Texts of mixed length, each with the name of its class, which a few of its words tell."""
    chance = random.Random(seed)
    names = list(WORDS)[:classes]
    rows = []
    for i in range(count):
        name = names[i % classes]
        words = chance.choices(FILLER, k=chance.randint(2, longest)) + chance.sample(WORDS[name], 2)
        chance.shuffle(words)
        rows.append((" ".join(words), name))
    return rows


def write_csv(
    path: Path, rows: list[tuple[str, str]], header: tuple[str, ...] = ("text", "label")
) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def tiny_model(folder: Path, positions: int = 32, **settings: Any) -> Path:
    """A BERT of one layer with weights of its own, and its tokenizer, saved."""
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *FILLER,
        *itertools.chain(*WORDS.values()),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = folder / "words.txt"
    vocabulary.write_text("".join(f"{word}\n" for word in words))
    BertTokenizerFast(str(vocabulary), model_max_length=positions).save_pretrained(folder)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "initializer_range": 0.2,
    }
    config = BertConfig(
        vocab_size=len(words), max_position_embeddings=positions, **{**sizes, **settings}
    )
    torch.manual_seed(3)
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def text_options(folder: Path, **changes: Any) -> TextConfig:
    """Options of a small run: 45 texts to learn from, 8 an update, so 6 updates an epoch."""
    model = folder / "pretrained"
    if not model.exists():
        tiny_model(model)
        write_csv(folder / "train.csv", sentences(45))
        write_csv(folder / "validation.csv", sentences(21, seed=1))
    base = {
        "model": str(model),
        "train_file": folder / "train.csv",
        "validation_file": folder / "validation.csv",
        "runs_dir": folder / "runs",
        "batch_size": 8,
        "epochs": 2,
        "lr": 0.01,
        "log_every": 2,
    }
    return TextConfig(**{**base, **changes})


def vector(module: torch.nn.Module) -> Tensor:
    """All weights in one vector."""
    return torch.cat([value.detach().flatten().double() for value in module.state_dict().values()])
