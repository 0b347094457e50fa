"""What comes before any loop: texts, a tokenizer, a model, and token numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accelerate.utils import set_seed

from gan.text.batches import encode
from gan.text.config import TextConfig
from gan.text.dataset import TextData, open_texts
from gan.text.model import load_pretrained


@dataclass(frozen=True)
class Prepared:
    """What comes before any loop.

    Attributes:
        data: texts and classes.
        tokenizer: of transformers; it can pad.
        model: of transformers, with a logit for each class.
        max_length: longest text in tokens.
        examples: encoded texts by part: train, validation and, if there is one, test.
    """

    data: TextData
    tokenizer: Any
    model: Any
    max_length: int
    examples: dict[str, list[dict[str, Any]]]


def prepare(config: TextConfig) -> Prepared:
    """Open the texts, load or build the model, and turn the one into what the other reads.

    Args:
        config: the options.

    Returns:
        All of it; any loop can go on from there.

    Raises:
        ConfigError: options that cannot be, for these texts or this model.
        DataError: the texts cannot be used.
        GanError: the model or the texts are on the hub, and it cannot be reached.
    """
    config = config.check()
    data = open_texts(config)
    set_seed(config.seed)  # the same new weights in every process
    texts = [" ".join(text) for text in data.train.texts]
    pretrained = load_pretrained(config, data.class_names, texts)
    data = data.with_classes(pretrained.class_names)
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    examples = {
        name: encode(pretrained.tokenizer, part, pretrained.max_length, f"{name} texts")
        for name, part in parts.items()
        if part
    }
    return Prepared(data, pretrained.tokenizer, pretrained.model, pretrained.max_length, examples)
