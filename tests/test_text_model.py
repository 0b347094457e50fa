"""Tokenizers and models: what does not fit is made to fit, and said."""

import json
import logging
import shutil

import pytest
import torch
from toy_texts import FILLER, text_options, tiny_model, vector
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from gan import text_classification as text
from gan.errors import ConfigError, GanError
from gan.text.batches import by_length, data_loader, encode
from gan.text.config import TextConfig
from gan.text.dataset import Texts
from gan.text.model import load_pretrained


@pytest.fixture
def loaded(caplog):
    """`loaded(folder, class_names, **options)` gives the model and what was said of it."""

    def load(folder, class_names=("a", "b"), **options):
        caplog.clear()
        with caplog.at_level(logging.INFO, "gan"):
            config = TextConfig(model=str(folder), train_file="x.csv", **options).check()
            model = load_pretrained(config, class_names, ["some text"])
        return model, [message.replace(str(folder), "MODEL") for message in caplog.messages]

    return load


def test_a_head_that_fits_is_kept(loaded, tmp_path):
    folder = tiny_model(tmp_path)
    pretrained, said = loaded(folder)
    before = BertForSequenceClassification.from_pretrained(folder)
    assert torch.equal(vector(pretrained.model), vector(before))
    assert pretrained.model.config.id2label == {0: "a", 1: "b"}
    assert said == ["MODEL: its head knows LABEL_0, LABEL_1; it goes on from there"]


def test_a_head_of_another_size_is_made_anew_and_that_is_said(loaded, tmp_path):
    folder = tiny_model(tmp_path)
    pretrained, said = loaded(folder, ("a", "b", "c"))
    assert pretrained.model.classifier.out_features == 3
    assert said == ["MODEL: its head is for 2 classes and the texts have 3; it gets a new head"]
    before = BertForSequenceClassification.from_pretrained(folder)
    assert torch.equal(vector(pretrained.model.bert), vector(before.bert))


def test_a_model_without_a_head_gets_one(loaded, tmp_path):
    folder = tiny_model(tmp_path)
    BertForSequenceClassification.from_pretrained(folder).bert.save_pretrained(folder)
    torch.manual_seed(0)
    pretrained, said = loaded(folder)
    assert said == ["MODEL: has no head for classes yet; it gets a new one"]
    torch.manual_seed(0)
    assert torch.equal(vector(loaded(folder)[0].model), vector(pretrained.model))


def test_a_head_that_knows_the_classes_keeps_their_order(loaded, tmp_path):
    folder = tiny_model(
        tmp_path / "m", id2label={0: "sport", 1: "food"}, label2id={"sport": 0, "food": 1}
    )
    pretrained, said = loaded(folder, ("food", "sport"))
    assert pretrained.class_names == ("sport", "food")
    assert said == []
    run = text.build(text_options(tmp_path, model=str(folder)))
    assert run.data.class_names == ("sport", "food")
    assert run.model.config.id2label == {0: "sport", 1: "food"}
    assert run.examples["train"][0]["label"] == 1  # food


def test_half_precision_weights_are_trained_in_full(loaded, tmp_path):
    folder = tiny_model(tmp_path)
    BertForSequenceClassification.from_pretrained(folder).half().save_pretrained(folder)
    assert {p.dtype for p in loaded(folder)[0].model.parameters()} == {torch.float32}


# --- tokenizers ----------------------------------------------------------------------------------


def gpt2(folder, eos=True):
    """A decoder whose tokenizer cannot pad, as GPT-2's."""
    tiny_model(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("pad_token")
    settings |= {"eos_token": "[SEP]"} if eos else {}
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 24}
    config = GPT2Config(
        vocab_size=len(tokenizer), **size, bos_token_id=3, eos_token_id=3, num_labels=2
    )
    GPT2ForSequenceClassification(config).save_pretrained(folder)
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 10**30}
    settings = {key: value for key, value in settings.items() if key != "added_tokens_decoder"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    return folder


@pytest.mark.parametrize("eos", [True, False])
def test_a_tokenizer_that_cannot_pad_learns_to(loaded, tmp_path, eos):
    folder = gpt2(tmp_path / "m", eos)
    assert AutoTokenizer.from_pretrained(folder).pad_token is None
    pretrained, said = loaded(folder)
    assert said[-1] == f"its tokenizer cannot pad; it pads with {'[SEP]' if eos else '[PAD]'}"
    assert pretrained.model.config.pad_token_id == pretrained.tokenizer.pad_token_id is not None
    assert pretrained.max_length == 24
    # Padding changes no logit, which it would if the model did not know its padding.
    examples = encode(pretrained.tokenizer, Texts([("the a of",), ("and",), ("",)], None), 24)
    alone, together = (
        text._logits(None, pretrained.model, pretrained.tokenizer, examples, size)
        for size in (1, 3)
    )
    torch.testing.assert_close(alone, together)


def test_such_a_model_trains(tmp_path):
    folder = gpt2(tmp_path / "m")
    text.train(text_options(tmp_path, model=str(folder), epochs=1))
    assert text.predict(tmp_path / "runs" / "text-001" / "model", ["the ball"]).classes


def test_positions_are_counted_from_behind_the_paddings_own(loaded, tmp_path):
    """RoBERTa's 34 positions hold 32 tokens; its tokenizer here has no maximum."""
    folder = tiny_model(tmp_path, positions=34)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = 10**30
    tokenizer.save_pretrained(folder)
    size = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    config = RobertaConfig(vocab_size=50, max_position_embeddings=34, pad_token_id=1, **size)
    RobertaForSequenceClassification(config).save_pretrained(folder)
    assert loaded(folder)[0].max_length == 32
    with pytest.raises(ConfigError, match=r"max_length: 33, but .* reads 32 tokens at most"):
        loaded(folder, max_length=33)


def test_a_text_longer_than_the_model_is_cut_counted_and_said_once(tmp_path, caplog):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model(tmp_path, positions=8))
    texts = Texts([("the a",), ("the " * 50,), ("of " * 6,), ("of " * 7,)], [0, 1, 0, 1])
    with caplog.at_level(logging.INFO):
        examples = encode(tokenizer, texts, 8, "train texts")
    assert caplog.messages == ["2 of 4 train texts are longer than 8 tokens; cut"]
    assert [len(example["input_ids"]) for example in examples] == [4, 8, 8, 8]
    assert examples[1]["input_ids"][-1] == tokenizer.sep_token_id
    assert [example["label"] for example in examples] == [0, 1, 0, 1]


def test_of_a_pair_the_longer_text_is_cut(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model(tmp_path, positions=12))
    (example,) = encode(tokenizer, Texts([("the a", "of " * 30)], None), 12)
    assert tokenizer.decode(example["input_ids"]) == f"[CLS] the a [SEP] {'of ' * 7}[SEP]"
    assert example["token_type_ids"] == [0] * 4 + [1] * 8


def test_batches_are_padded_to_their_own_longest_text(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model(tmp_path))
    examples = encode(tokenizer, Texts([("the",), ("the a of",), ("and the",)], [0, 1, 1]), 32)
    (first, second) = data_loader(examples, [[0, 2], [1]], tokenizer)
    assert first["input_ids"].tolist() == [[2, 5, 3, 0], [2, 8, 5, 3]]
    assert first["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert second["input_ids"].shape == (1, 5)
    assert second["labels"].tolist() == [1]
    (padded,) = data_loader(examples, [[0, 2, 1]], tokenizer, pad_to=9)
    assert padded["input_ids"].shape == (3, 9)
    assert by_length(examples, 2) == [[1, 2], [0]]


# --- what is no model ----------------------------------------------------------------------------


def test_a_folder_without_a_tokenizer(loaded, tmp_path):
    folder = tiny_model(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "words.txt", "vocab.txt"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(ConfigError, match=r"model: .* (has no tokenizer beside it|cannot be used)"):
        loaded(folder)


def test_what_is_no_model(loaded, tmp_path):
    with pytest.raises(ConfigError, match=r"model: .*/nowhere is no folder"):
        loaded(tmp_path / "nowhere")
    with pytest.raises(
        ConfigError, match=r"model: .* cannot be used: .*what needs no hub: --model small"
    ):
        loaded(tmp_path)
    shutil.copy(__file__, tmp_path / "config.json")
    with pytest.raises(ConfigError, match=r"model: .* cannot be used"):
        loaded(tmp_path)


def test_a_model_of_the_hub_that_cannot_be_reached(loaded, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(GanError, match=r"^model: no-such-model-here needs http.*what needs no hub"):
        loaded("no-such-model-here")


# --- the small model -----------------------------------------------------------------------------


def test_the_small_model_is_the_same_each_time(loaded):
    torch.manual_seed(0)
    first, said = loaded("small", ("a", "b", "c"))
    torch.manual_seed(0)
    again, _ = loaded("small", ("a", "b", "c"))
    assert said == []
    assert torch.equal(vector(first.model), vector(again.model))
    assert first.tokenizer.get_vocab() == again.tokenizer.get_vocab()
    assert first.max_length == first.model.config.max_position_embeddings == 64
    assert first.tokenizer.tokenize("some text") != ["[UNK]", "[UNK]"]


def test_its_word_pieces_are_those_of_its_texts():
    from gan.text.model import _word_pieces

    texts = [" ".join(FILLER), "the other one, öfter"] * 3
    pieces = _word_pieces(texts)
    assert pieces == _word_pieces(texts)
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(set(pieces)) == len(pieces)
    assert {"the", "##o", "very"} <= set(pieces)


@pytest.mark.parametrize("dropout", [None, 0.0, 0.25])
def test_every_dropout_is_set_or_none(loaded, tmp_path, dropout):
    model = loaded(tiny_model(tmp_path, classifier_dropout=0.3), dropout=dropout)[0].model
    own = {0.1, 0.3}
    found = {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)}
    found.add(model.config.attention_probs_dropout_prob)
    assert found == (own if dropout is None else {dropout})


def test_a_model_that_cannot_forget_activations_says_so(loaded, tmp_path, monkeypatch):
    folder = tiny_model(tmp_path)
    monkeypatch.setattr(BertForSequenceClassification, "supports_gradient_checkpointing", False)
    with pytest.raises(ConfigError, match=r"gradient_checkpointing: .* cannot do it"):
        loaded(folder, gradient_checkpointing=True)
