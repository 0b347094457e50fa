"""The text classifier: one Player, exact where the GAN loop is exact."""

import dataclasses
import itertools
import json
import logging
import os
import random
import signal
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from conftest import reset_accelerate
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.nn.functional import cross_entropy
from toy_texts import sentences, text_options, tiny_model, vector, write_csv
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from gan import text_classification as text
from gan.errors import CheckpointError, ConfigError, DivergenceError
from gan.text.batches import Windows
from gan.text.config import TextConfig
from gan.text_run import build, load_best, resume, saved_config


def trained(config: TextConfig, until: int | None = None) -> text.TextRun:
    """A run in a fresh process, as far as Accelerate can tell."""
    reset_accelerate()
    run = build(config)
    text.start(run)
    text.fit(run, until)
    return run


# --- the order -----------------------------------------------------------------------------------

LENGTHS = [5, 9, 2, 7, 7, 3, 8, 1, 6, 4, 9, 2, 5]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("micro_batches", "processes"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_every_text_once_an_epoch_and_the_weighted_means_are_the_mean(
    grouped, micro_batches, processes
):
    order = Windows(
        LENGTHS, 2, micro_batches=micro_batches, processes=processes, group_by_length=grouped
    )
    value = torch.arange(len(LENGTHS)).double()
    for epoch in range(3):
        order.position = epoch * order.windows
        batches = list(order)
        assert len(batches) == len(order)
        seen = []
        for window, texts in enumerate(order.epoch(epoch)):
            counts = order.counts(window)
            mine, batches = batches[: len(counts)], batches[len(counts) :]
            real = [batch[:count] for batch, count in zip(mine, counts, strict=True)]
            assert [*itertools.chain(*real)] == texts.tolist()
            seen += texts.tolist()
            means = [
                sum(weight * value[batch].mean() for weight, batch in pairs) / len(pairs)
                for process in range(processes)
                if (
                    pairs := list(
                        zip(order.weights(window, process), mine[process::processes], strict=True)
                    )
                )
            ]
            torch.testing.assert_close(sum(means) / processes, value[texts].mean())
        assert sorted(seen) == list(range(len(LENGTHS)))
        assert batches == []


def test_fewer_texts_than_processes():
    order = Windows([4], 8, micro_batches=2, processes=3)
    assert (order.windows, list(order), order.counts(0)) == (1, [[0], [0], [0]], [1, 0, 0])
    assert [order.weights(0, process) for process in range(3)] == [[3.0], [0.0], [0.0]]


def test_another_cut_of_the_same_windows_changes_no_window():
    one = Windows(LENGTHS, 4, group_by_length=True, seed=5)
    other = Windows(LENGTHS, 1, micro_batches=2, processes=2, group_by_length=True, seed=5)
    for epoch in range(3):
        assert [w.tolist() for w in one.epoch(epoch)] == [w.tolist() for w in other.epoch(epoch)]


def test_the_order_is_that_of_accelerates_seedable_sampler():
    from accelerate.data_loader import SeedableRandomSampler

    sampler = SeedableRandomSampler(LENGTHS, data_seed=3)
    order = Windows(LENGTHS, 4, seed=3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert torch.cat(order.epoch(epoch)).tolist() == list(sampler)


def test_grouping_by_length_saves_padding_and_keeps_chance():
    lengths = torch.randint(1, 100, (640,), generator=torch.Generator().manual_seed(0)).tolist()

    def padded(order):
        return sum(max(lengths[i] for i in batch) * len(batch) for batch in order)

    mixed, grouped = (Windows(lengths, 8, group_by_length=g) for g in (False, True))
    assert padded(grouped) < 1.15 * sum(lengths) < 1.6 * sum(lengths) < padded(mixed)
    first, second = ({frozenset(w.tolist()) for w in grouped.epoch(e)} for e in (0, 1))
    assert len(first & second) < 8
    means = [torch.tensor(lengths)[w].double().mean() for w in grouped.epoch(0)]
    assert means != sorted(means)


def test_a_position_within_an_epoch_is_where_it_goes_on():
    order = Windows(LENGTHS, 2, processes=2, group_by_length=True)
    order.position = order.windows
    whole = list(order)
    order.position = order.windows + 2
    assert list(order) == whole[4:]


# --- exactness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("until", [3, 6, 8])
def test_n_steps_and_n_more_are_2n_steps_with_dropout(tmp_path, until):
    config = text_options(tmp_path, dropout=0.1, gradient_accumulation_steps=2, batch_size=4)
    whole = trained(config)
    assert (whole.step, whole.steps, whole.order.windows) == (12, 12, 6)
    part = trained(dataclasses.replace(config, name="part"), until)
    assert part.step == until
    reset_accelerate()
    again = resume(part.folder)
    assert again.step == until
    assert text.fit(again) == 0
    assert torch.equal(vector(again.model), vector(whole.model))
    assert (again.best, again.best_step, again.waited) == (
        whole.best,
        whole.best_step,
        whole.waited,
    )
    assert again.classifier.lr == whole.classifier.lr == 0
    other = trained(dataclasses.replace(config, name="other", seed=1))
    assert not torch.equal(vector(other.model), vector(whole.model))


@pytest.mark.parametrize("grouped", [False, True])
def test_two_processes_are_one_with_the_same_total_batch(tmp_path, two_processes, grouped):
    # Plain descent: Adam divides by what is nearly zero, and shows rounding as if it were more.
    config = text_options(tmp_path, dropout=0.0, optimizer="SGD", lr=0.1, group_by_length=grouped)
    one = trained(config)
    cut = dataclasses.replace(config, batch_size=4, name="cut", gradient_accumulation_steps=2)
    torch.testing.assert_close(vector(trained(cut).model), vector(one.model), rtol=1e-5, atol=1e-6)

    def rank():
        run = trained(dataclasses.replace(config, batch_size=4, name="two"))
        return run.step, vector(run.model), text.predict_logits(run, "validation"), run.best

    (steps, first, logits, best), (_, second, same_logits, _) = two_processes(rank)
    assert steps == one.step == 12
    assert torch.equal(first, second)
    assert torch.equal(logits, same_logits)
    torch.testing.assert_close(first, vector(one.model), rtol=1e-5, atol=1e-6)
    assert best == pytest.approx(one.best)


def test_evaluation_has_the_same_bits_on_two_processes(tmp_path, two_processes):
    config = text_options(tmp_path)

    def rank():
        return text.predict_logits(build(config), "validation")

    one = rank()
    assert one.shape == (21, 2)  # three batches, for two processes
    for logits in two_processes(rank):
        assert torch.equal(logits, one)


def test_an_epochs_tail_counts_as_what_it_is(tmp_path):
    """45 texts, 8 an update: the last update of the epoch is the mean over 5."""
    config = text_options(
        tmp_path, dropout=0.0, optimizer="SGD", batch_size=4, gradient_accumulation_steps=2
    )
    run = build(config)
    run.step = 5
    window = next(run.windows())
    assert [(len(m.labels), m.weight) for m in window] == [(4, 4 * 2 / 5), (1, 1 * 2 / 5)]
    model = run.model
    assert model.training
    losses = [cross_entropy(model(**m.inputs).logits, m.labels, reduction="sum") for m in window]
    (sum(losses) / 5).backward()
    wanted = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    for group in run.classifier.optimizer.param_groups:
        group["lr"] = 1.0
    before = [p.detach().clone() for p in model.parameters()]
    scalars = text.train_step(run.accelerator, run.classifier, window)
    torch.testing.assert_close(scalars["loss/classifier"], sum(losses).detach() / 5)
    after = [p.detach() for p in model.parameters()]
    for old, new, grad in zip(before, after, wanted, strict=True):
        torch.testing.assert_close(old - new, grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_gradient_checkpointing_changes_no_weight(tmp_path, dropout):
    config = text_options(tmp_path, dropout=dropout, epochs=1)
    plain = trained(config)
    forgetful = trained(dataclasses.replace(config, gradient_checkpointing=True, name="forgetful"))
    assert torch.equal(vector(forgetful.model), vector(plain.model))
    for run, times in ((plain, 1), (forgetful, 2)):
        attention = run.model.bert.encoder.layer[0].attention
        with mock.patch.object(attention, "forward", wraps=attention.forward) as forward:
            text.train_step(run.accelerator, run.classifier, next(run.windows()))
        assert forward.call_count == times


def test_padding_to_the_batch_or_to_the_limit_is_the_same_training(tmp_path):
    config = text_options(tmp_path, dropout=0.0, optimizer="SGD", lr=0.1)
    batch = trained(config)
    limit = trained(dataclasses.replace(config, padding="max", name="max"))
    assert next(limit.windows())[0].inputs["input_ids"].shape == (8, 32)
    assert next(batch.windows())[0].inputs["input_ids"].shape[1] < 32
    torch.testing.assert_close(vector(limit.model), vector(batch.model), rtol=1e-5, atol=1e-6)


def test_loading_processes_change_nothing_and_say_nothing(tmp_path, capfd):
    config = text_options(tmp_path, epochs=1)
    plain = trained(config)
    capfd.readouterr()
    forked = trained(dataclasses.replace(config, num_workers=2, name="forked"))
    assert torch.equal(vector(forked.model), vector(plain.model))
    assert "tokenizers" not in capfd.readouterr().err


def test_fp16_needs_a_gpu(tmp_path):
    with pytest.raises(
        ConfigError, match="mixed_precision: fp16 on cpu would silently run in fp32"
    ):
        build(text_options(tmp_path, mixed_precision="fp16"))


def test_bf16_is_near(tmp_path):
    config = text_options(tmp_path, dropout=0.0, optimizer="SGD", lr=0.1, epochs=1)
    exact, rough = (
        trained(dataclasses.replace(config, mixed_precision=p, name=p)) for p in ("no", "bf16")
    )
    difference = (vector(exact.model) - vector(rough.model)).abs().max()
    assert 0 < difference < 0.01
    assert {p.dtype for p in rough.model.parameters()} == {torch.float32}


def test_scores():
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0], [1.0, 0.0], [0.0, 1.0]])
    scores = text.Scores.of(logits, [0, 0, 1, 1, 1])
    assert scores.confusion.tolist() == [[1, 1], [1, 2]]
    assert scores.accuracy == pytest.approx(3 / 5)
    assert scores.f1 == pytest.approx(2 / 3)  # of class 1: precision and recall are 2/3
    assert scores.matthews == pytest.approx((2 * 1 - 1 * 1) / (3 * 3 * 2 * 2) ** 0.5)
    margins = torch.tensor([2.0, -1.0, 3.0, -1.0, 1.0])
    assert scores.loss == pytest.approx(torch.log1p((-margins).exp()).mean().item())
    three = text.Scores.of(torch.eye(3)[[0, 1, 1]], [0, 1, 2])
    assert three.f1 == pytest.approx((1 + 2 / 3 + 0) / 3)  # the mean over the classes
    assert three.confusion.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]


def test_pairs_of_texts(tmp_path):
    """Alike or not: which neither text of a pair tells alone."""
    halves = sentences(60, longest=2), sentences(60, longest=2, seed=2)
    random.Random(0).shuffle(halves[1])
    lines = [f"{a},{b},{int(x == y)}" for (a, x), (b, y) in zip(*halves, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["sentence1,sentence2,label", *lines]))
    config = text_options(tmp_path, train_file=tmp_path / "pairs.csv", validation_file=None)
    run = trained(dataclasses.replace(config, epochs=1))
    types = next(run.windows())[0].inputs["token_type_ids"]
    assert set(types.flatten().tolist()) == {0, 1}
    pair = halves[0][0][0], halves[1][0][0]
    assert text.predict(run.output_dir, [pair]).probabilities.sum() == pytest.approx(1)


# --- what a run leaves ---------------------------------------------------------------------------


def test_the_saved_model_is_one_that_plain_transformers_loads(tmp_path):
    run = trained(text_options(tmp_path, epochs=12, lr=0.03))
    folder = run.output_dir
    assert folder == tmp_path / "runs" / "text-001" / "model"
    load_best(run)
    logits = text.predict_logits(run, "validation")

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.id2label == {0: "food", 1: "sport"}
    texts = [row for row, _ in sentences(21, seed=1)]
    with torch.no_grad():
        theirs = model(
            **tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        ).logits
    torch.testing.assert_close(theirs, logits, rtol=1e-4, atol=1e-5)

    prediction = text.predict(folder, texts)
    torch.testing.assert_close(prediction.probabilities, theirs.softmax(1), rtol=1e-4, atol=1e-5)
    assert prediction.class_names == ("food", "sport")
    right = [
        guess == name
        for guess, (_, name) in zip(prediction.classes, sentences(21, seed=1), strict=True)
    ]
    assert sum(right) / 21 == pytest.approx(run.best)
    assert run.best > 0.8
    assert text.predict(folder, []).probabilities.shape == (0, 2)


def test_two_processes_save_what_one_loads(tmp_path, two_processes):
    config = text_options(tmp_path, epochs=1)

    def rank():
        run = trained(config)
        load_best(run)
        return text.predict_logits(run, "validation")

    logits = two_processes(rank)[0]
    saved = text.predict(
        tmp_path / "runs" / "text-001" / "model", [t for t, _ in sentences(21, seed=1)]
    )
    assert torch.equal(saved.probabilities.argmax(1), logits.argmax(1))


def scalars_of(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def test_the_curves(tmp_path):
    run = trained(text_options(tmp_path, eval_every=4), until=6)
    reset_accelerate()
    text.fit(resume(run.folder))
    curves = scalars_of(run.folder)
    assert set(curves) == {
        *("loss/classifier", "grad_norm/classifier", "lr/classifier"),
        *("time/texts_per_second", "time/epoch"),
        *("validation/loss", "validation/accuracy", "validation/f1", "validation/matthews"),
    }
    assert [step for step, _ in curves["lr/classifier"]] == [2, 4, 6, 8, 10, 12]
    assert [step for step, _ in curves["validation/loss"]] == [4, 8, 12]
    # 12 updates: 1 of warm-up, then a line to 0.
    rates = [rate for _, rate in curves["lr/classifier"]]
    assert rates == pytest.approx([0.01 * (12 - step) / 11 for step in (2, 4, 6, 8, 10, 12)])


def test_the_best_model_is_kept_and_patience_ends_the_run(tmp_path):
    """With a learning rate of 0 nothing gets better after the first evaluation."""
    config = text_options(tmp_path, lr=1e-30, epochs=9, patience=2, dropout=0.0)
    run = trained(config)
    assert (run.step, run.best_step, run.waited) == (18, 6, 2)
    reset_accelerate()
    assert text.fit(resume(run.folder)) == 0
    reset_accelerate()
    more = resume(run.folder, dataclasses.replace(saved_config(run.folder), patience=3))
    text.fit(more)
    assert (more.step, more.best_step, more.waited) == (24, 6, 3)


def test_the_model_on_disk_is_the_best_and_not_the_last(tmp_path):
    config = text_options(tmp_path, metric="loss", epochs=8, lr=0.2, warmup=0.0)
    run = trained(config)
    losses = [loss for _, loss in scalars_of(run.folder)["validation/loss"]]
    assert min(losses) < losses[-1], "this run should have got worse"
    load_best(run)
    assert (
        text.evaluate(run).loss == pytest.approx(min(losses), rel=1e-5) == pytest.approx(run.best)
    )
    assert run.best_step == 6 * (1 + losses.index(min(losses)))


def test_a_signal_ends_the_run_with_everything_saved(tmp_path, monkeypatch):
    config = text_options(tmp_path, dropout=0.1)
    whole = trained(config)
    step = text.train_step

    def interrupted(*args):
        if run.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(*args)

    monkeypatch.setattr(text, "train_step", interrupted)
    reset_accelerate()
    run = build(dataclasses.replace(config, name="stopped"))
    text.start(run)
    assert text.fit(run) == signal.SIGTERM
    assert run.step == 4
    monkeypatch.undo()
    reset_accelerate()
    again = resume(run.folder)
    text.fit(again)
    assert torch.equal(vector(again.model), vector(whole.model))


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    config = text_options(tmp_path, lr=1e30, warmup=0.0)
    with pytest.raises(DivergenceError, match=r"^step \d+: the classifier's loss is (nan|inf)"):
        trained(config)


def test_what_cannot_change_on_resume_is_named(tmp_path):
    run = trained(text_options(tmp_path), until=2)
    saved = saved_config(run.folder)
    assert saved == dataclasses.replace(run.config, name="text-001")
    reset_accelerate()
    with pytest.raises(ConfigError) as refused:
        resume(run.folder, dataclasses.replace(saved, lr=0.5, seed=2))
    assert refused.value.problems == [
        "lr: 0.5, but the run was trained with 0.01; it cannot change on resume",
        "seed: 2, but the run was trained with 0; it cannot change on resume",
    ]
    with pytest.raises(ConfigError, match=r"batch_size: 16 texts an update.* it was 8 before"):
        resume(run.folder, dataclasses.replace(saved, batch_size=16))
    write_csv(tmp_path / "train.csv", sentences(45, seed=9))
    reset_accelerate()
    with pytest.raises(ConfigError, match=r"the texts of .*train\.csv are not those that"):
        resume(run.folder)


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(CheckpointError, match=r"is no run folder: there is no config\.yaml in it"):
        resume(tmp_path)
    run = build(text_options(tmp_path))
    text.start(run)
    with pytest.raises(CheckpointError, match="has no complete checkpoint yet"):
        resume(run.folder)
    with pytest.raises(CheckpointError, match="holds no model that classifies texts"):
        text.predict(tmp_path, ["x"])


def test_an_output_folder_that_is_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    run = build(text_options(tmp_path, output_dir=tmp_path / "mine"))
    with pytest.raises(Exception, match=r"output_dir: .*mine is not empty; name a new folder"):
        text.start(run)
    assert not (tmp_path / "runs").exists()
    reset_accelerate()
    folder = text.train(text_options(tmp_path, output_dir=tmp_path / "new", epochs=1))
    assert folder == tmp_path / "new"
    assert json.loads((folder / "config.json").read_text())["id2label"] == {
        "0": "food",
        "1": "sport",
    }
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


# --- options -------------------------------------------------------------------------------------


def test_options_come_back_from_yaml(tmp_path):
    config = text_options(tmp_path, text_columns=("a", "b"), patience=3)
    config.save(tmp_path / "config.yaml")
    assert TextConfig.load(tmp_path / "config.yaml") == config
    (tmp_path / "config.yaml").write_text("lrr: 1\nepochs: many\n")
    with pytest.raises(ConfigError) as wrong:
        TextConfig.load(tmp_path / "config.yaml")
    assert wrong.value.problems == [
        f"{tmp_path / 'config.yaml'}: lrr: unknown option; did you mean lr?",
        f"{tmp_path / 'config.yaml'}: epochs: expected int, got 'many'",
    ]


def test_all_impossible_options_are_named_at_once():
    config = TextConfig(
        batch_size=0, epochs=0, seed=-1, lr=0.0, dropout=1.0, warmup=2.0, validation_share=1.0,
        text_columns=("a", "b", "c"), name="a/b", clip_norm=0.0, dataset="imdb", train_file="x.csv",
    )  # fmt: skip
    with pytest.raises(ConfigError) as wrong:
        config.check()
    assert [problem.partition(":")[0] for problem in wrong.value.problems] == [
        *("batch_size", "epochs", "seed", "lr", "clip_norm", "dropout", "warmup"),
        *("validation_share", "text_columns", "dataset", "name"),
    ]


def test_a_seed_that_numpy_cannot_take_is_refused():
    with pytest.raises(ConfigError, match="seed: 4294967296 is above 4294967295"):
        TextConfig(seed=2**32).check()


def test_what_is_left_open_depends_on_the_model():
    assert TextConfig().check().model == "small"
    assert TextConfig().check().lr == 1e-3
    config = TextConfig(dataset="glue/mrpc").check()
    assert (config.model, config.lr, config.epochs) == ("distilbert-base-cased", 2e-5, 3)
    assert TextConfig(dataset="glue/mrpc", lr=1e-4).check().lr == 1e-4


@pytest.mark.parametrize("name", ["adam", "AdamW", "adafactor", "SGD"])
def test_optimizers_by_name(tmp_path, name):
    run = build(text_options(tmp_path, optimizer=name, lr=0.01))
    assert type(run.classifier.optimizer).__name__.lower() == name.lower()
    before = vector(run.model)
    windows = run.windows()
    for _ in range(2):  # the first has learning rate 0
        text.train_step(run.accelerator, run.classifier, next(windows))
    assert not torch.equal(vector(run.model), before)


def test_an_optimizer_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="'adm' is unknown; did you mean Adam"):
        build(text_options(tmp_path, optimizer="adm"))
    with pytest.raises(ConfigError, match=r"optimizer: rprop: .*weight_decay"):
        build(text_options(tmp_path, optimizer="rprop", weight_decay=0.1))


def test_the_step_is_the_pattern_of_the_gans(tmp_path):
    """It trains whatever returns logits, with any Player, without the rest of the toolkit."""
    accelerator = Accelerator(cpu=True, step_scheduler_with_optimizer=False)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_model(tmp_path / "m"))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    player = text.Player(accelerator, model, optimizer)
    inputs = {"input_ids": torch.tensor([[2, 15, 3], [2, 21, 3]])}
    window = [text.MicroBatch(inputs, torch.tensor([0, 1]))]
    losses = [text.train_step(accelerator, player, window)["loss/classifier"] for _ in range(30)]
    assert losses[-1] < 0.1 < losses[0]


def test_a_run_says_what_it_does(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "gan"):
        trained(text_options(tmp_path, epochs=1))
    assert caplog.messages[-1].startswith("step 6 of 6: loss ")
