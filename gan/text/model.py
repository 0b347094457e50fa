"""A tokenizer and a transformer with a classification head: from a folder, the hub, or built here.

What cannot be right is put right here, once, and said: a head of another size, a tokenizer that
cannot pad, a text longer than the model can read.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
)
from transformers.utils import logging as hf_logging

from gan.errors import ConfigError
from gan.text.config import TextConfig
from gan.text.hub import OFFLINE, need_hub

_log = logging.getLogger(__name__)
_WORD_PIECES = 4000


@dataclass(frozen=True)
class Pretrained:
    """What makes numbers of texts, and classes of numbers.

    Attributes:
        tokenizer: of transformers; it can pad.
        model: a `PreTrainedModel` with one logit for each class.
        max_length: longest text to give it, in tokens.
        class_names: by label, in the order that the model has learned if it knows these classes.
    """

    tokenizer: Any
    model: Any
    max_length: int
    class_names: tuple[str, ...]


def load_pretrained(
    config: TextConfig, class_names: Sequence[str], texts: Iterable[str]
) -> Pretrained:
    """Load, or build, the model that the options name.

    Args:
        config: checked options.
        class_names: of the texts.
        texts: what a tokenizer is trained on, where there is none to load.

    Returns:
        Tokenizer and model. New weights come from torch's global generator.

    Raises:
        ConfigError: it is no model that classifies texts, or cannot do what the options ask for.
        GanError: it is on the hub, and the hub cannot be reached.
    """
    name = str(config.model)
    with quiet():
        if config.small:
            tokenizer, model, names = *_small(config, class_names, texts), tuple(class_names)
        else:
            tokenizer, model, names = _load(name, class_names, config.dropout)
    _make_padding_possible(tokenizer, model)
    # Decided here, once: left open, the type of the first batch's labels would decide the loss.
    model.config.problem_type = "single_label_classification"
    if config.gradient_checkpointing:
        if not model.supports_gradient_checkpointing:
            raise ConfigError(f"gradient_checkpointing: {name} cannot do it")
        names_of_it = "activation_checkpointing_enable", "gradient_checkpointing_enable"
        enable = next(getattr(model, way) for way in names_of_it if hasattr(model, way))
        enable({"use_reentrant": False})
        model.config.use_cache = False
    limit = min(tokenizer.model_max_length, _positions(model))
    if config.max_length is not None and config.max_length > limit:
        raise ConfigError(
            f"max_length: {config.max_length}, but {name} reads {limit} tokens at most"
        )
    return Pretrained(tokenizer, model, config.max_length or min(limit, 512), names)


def _positions(model: nn.Module) -> int:
    """How many tokens a model has positions for; very many where positions are computed."""
    for name, module in model.named_modules():
        # RoBERTa and its like count from behind the padding's own position.
        if (
            name.endswith("position_embeddings")
            and getattr(module, "padding_idx", None) is not None
        ):
            return int(module.num_embeddings - module.padding_idx - 1)
    return int(getattr(model.config, "max_position_embeddings", 10**9))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' own reports: what matters in them is said in a sentence of ours.

    Yields:
        Nothing.
    """
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()


# --- from a folder or the hub --------------------------------------------------------------------


def _load(
    name: str, class_names: Sequence[str], dropout: float | None
) -> tuple[Any, Any, tuple[str, ...]]:
    source = Path(name).expanduser()
    if not source.is_dir():
        if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
            raise ConfigError(f"model: {name} is no folder")
        if not _is_cached(name):
            need_hub(f"model: {name}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(source if source.is_dir() else name)
        settings = AutoConfig.from_pretrained(source if source.is_dir() else name)
        known = tuple(settings.id2label[i] for i in range(settings.num_labels))
        names = known if sorted(known) == sorted(class_names) else tuple(class_names)
        settings.id2label = dict(enumerate(names))
        settings.label2id = {class_name: label for label, class_name in enumerate(names)}
        _set_dropout(settings, dropout)
        model, report = AutoModelForSequenceClassification.from_pretrained(
            source if source.is_dir() else name,
            config=settings,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ConfigError(f"model: {name} cannot be used: {reason}; {OFFLINE}") from None
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ConfigError(
            f"model: {name} has no tokenizer beside it; copy the files of its tokenizer there"
        )
    if report["mismatched_keys"]:
        _log.warning(
            "%s: its head is for %d classes and the texts have %d; it gets a new head",
            name, len(known), len(names),
        )  # fmt: skip
    elif report["missing_keys"]:
        _log.info("%s: has no head for classes yet; it gets a new one", name)
    elif set(known) != set(names):
        _log.info("%s: its head knows %s; it goes on from there", name, ", ".join(known))
    return tokenizer, model.float(), names  # weights are kept in fp32, whatever the file has


def _is_cached(name: str) -> bool:
    try:
        AutoConfig.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError):
        return False
    return True


def _set_dropout(settings: Any, dropout: float | None) -> None:
    if dropout is not None:
        for key, value in settings.to_dict().items():
            if ("dropout" in key or key.endswith("pdrop")) and (
                value is None or isinstance(value, float | int)
            ):
                setattr(settings, key, dropout)


def _make_padding_possible(tokenizer: Any, model: Any) -> None:
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is not None:
            tokenizer.pad_token = tokenizer.eos_token
        else:
            tokenizer.add_special_tokens({"pad_token": "[PAD]"})
        _log.info("its tokenizer cannot pad; it pads with %s", tokenizer.pad_token)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    model.config.pad_token_id = tokenizer.pad_token_id


# --- a small one ---------------------------------------------------------------------------------


def _small(config: TextConfig, class_names: Sequence[str], texts: Iterable[str]) -> tuple[Any, Any]:
    """BERT's architecture with 2 layers of width 128, new, and a tokenizer of 4000 word pieces."""
    length = config.max_length or 128
    tokenizer = _bert_tokenizer(_word_pieces(list(texts)), length)
    settings = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=length,
        id2label=dict(enumerate(class_names)),
        label2id={name: label for label, name in enumerate(class_names)},
    )
    _set_dropout(settings, config.dropout)
    return tokenizer, BertForSequenceClassification(settings)


def _word_pieces(texts: list[str]) -> list[str]:
    """WordPiece's vocabulary of some texts, the same in every process and every run."""
    base = _bert_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], 10**9)
    letters = set(base.backend_tokenizer.normalizer.normalize_str(" ".join(texts))) - {" "}
    # The trainer numbers these in the order of a hash map, and breaks ties by number: fix it.
    inner = [f"##{letter}" for letter in sorted(letters)]
    trained = base.train_new_from_iterator(
        texts, len(inner) + _WORD_PIECES, new_special_tokens=inner, show_progress=False
    )
    pieces: dict[str, int] = trained.get_vocab()
    return sorted(pieces, key=pieces.__getitem__)


def _bert_tokenizer(pieces: Sequence[str], max_length: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocab.txt"
        file.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
        return BertTokenizerFast(str(file), model_max_length=max_length)
