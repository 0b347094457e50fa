"""What comes of a run: evaluations while it trains, the best checkpoint, the page."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import tiny

import gan
from gan import results
from gan.checkpoint import newest_checkpoint
from gan.data_config import DataConfig
from gan.errors import CheckpointError, ConfigError, GanError
from gan.loop import fit, start
from gan.results import (
    Evaluations,
    best_checkpoint,
    chosen_generator,
    describe_generator,
    evaluations,
    held_out,
    is_running,
    keep_best,
    mark_as_running,
)
from gan.run import build
from gan.state import resume, save, saved_config

EVALUATED: dict[str, Any] = {"evaluate_every": 2, "evaluate_num": 120}


@pytest.fixture(autouse=True)
def quick_judge(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("torch_fidelity", reason="needs: torch-fidelity ('gan-toolkit[metrics]')")
    monkeypatch.setattr("gan.metrics.judge._UPDATES", 10)
    monkeypatch.setenv("GAN_CACHE", str(tmp_path_factory.mktemp("cache")))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = newest_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    roles = ("generator", "discriminator", "ema")
    return {f"{role}/{k}": v for role in roles for k, v in checkpoint.weights(role).items()}


def without_time(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in each.items() if k != "time"} for each in evaluations(folder)]


def test_evaluations_are_noted_with_their_conditions_and_change_no_weight(tmp_path: Path) -> None:
    folder = gan.train(tiny(tmp_path, **EVALUATED))
    plain = gan.train(tiny(tmp_path))
    noted = evaluations(folder)
    assert [each["step"] for each in noted] == [2, 4, 6]
    for each in noted:
        assert set(each["values"]) == {"fid", "precision", "recall"}
        assert (each["features"], each["fakes"], each["reals"]) == ("self", 120, 1797)
        assert (each["weights"], each["data"]) == ("ema", "digits")
        assert each["features_hash"] == noted[0]["features_hash"]
    events = EventAccumulator(str(folder))
    events.Reload()
    assert [
        (point.step, pytest.approx(point.value)) for point in events.Scalars("metrics/fid")
    ] == [(each["step"], each["values"]["fid"]) for each in noted]
    mine, theirs = weights(folder), weights(plain)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"evaluate_num": 96},
            "features self needs at least 97 samples .*; there are 96 and 1797$",
        ),
        ({"evaluate_features": "inception"}, "inception needs at least 2049 .* 2000 and 1797$"),
        ({"data": "fake:90", "conditional": False}, "at least 97 .*; there are 2000 and 90$"),
    ],
)
def test_an_evaluation_of_too_few_images_is_refused_before_anything_is_made(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^evaluate_num: an evaluation .*{message}"):
        gan.train(tiny(tmp_path / "runs", evaluate_every=2, **options))
    assert not (tmp_path / "runs").exists()


def test_points_are_evaluated_too(tmp_path: Path) -> None:
    folder = gan.train(tiny(tmp_path, "ring", evaluate_every=6, evaluate_num=100, penalties=[]))
    (noted,) = evaluations(folder)
    assert noted["features"] == "points"
    assert noted["values"]["fid"] > 0


def test_a_run_is_evaluated_at_its_end_also_where_none_is_due(tmp_path: Path) -> None:
    folder = gan.train(tiny(tmp_path, evaluate_every=4, evaluate_num=120))
    assert [each["step"] for each in evaluations(folder)] == [4, 6]


def test_the_best_checkpoint_is_the_one_with_the_lowest_fid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fids = iter([5.0, 3.0, 3.0, 4.0, float("nan"), 3.5])
    monkeypatch.setattr(results, "evaluate", lambda *_, **__: entry(next(fids)))
    folder = gan.train(tiny(tmp_path, evaluate_every=1, save_every=None, keep=1))
    best = best_checkpoint(folder / "checkpoints")
    assert best is not None
    assert (best.step, best.manifest["best"]) == (2, {"fid": 3.0, "features": "self"})
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [
        "best",
        "step-00000006",
    ]


def entry(fid: float) -> dict[str, Any]:
    return {"values": {"fid": fid}, "features": "self"}


def test_resuming_gives_the_evaluations_and_the_best_of_one_whole_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gan")
    whole = gan.train(tiny(tmp_path, **EVALUATED, name="whole"))
    gan.train(tiny(tmp_path, **EVALUATED, name="parts"))
    # As if it had been killed after step 4, when step 6 was the best already.
    shutil.rmtree(tmp_path / "parts/checkpoints/step-00000006")
    resumed = resume(tmp_path / "parts")
    assert resumed.step == 4
    fit(resumed)
    mine, theirs = weights(tmp_path / "parts"), weights(whole)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    one, other = (best_checkpoint(each / "checkpoints") for each in (whole, tmp_path / "parts"))
    assert one is not None
    assert other is not None
    assert (one.step, one.manifest["best"]) == (other.step, other.manifest["best"])
    assert without_time(tmp_path / "parts") == without_time(whole)
    assert "metrics.json: step 6 has been evaluated before, and is replaced" in caplog.text


def test_an_evaluation_that_fails_is_a_warning_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, record = results.evaluate, results.record

    def evaluate(*arguments: Any, **options: Any) -> dict[str, Any]:
        if options["about"]["step"] == 4:
            raise GanError("fid cannot be computed of these features: no reason")
        return real(*arguments, **options)

    def refuse(path: Path, each: dict[str, Any]) -> bool:
        if each["step"] == 6:
            raise GanError("cannot write there: No space left on device")
        return record(path, each)

    monkeypatch.setattr(results, "evaluate", evaluate)
    monkeypatch.setattr(results, "record", refuse)
    folder = gan.train(tiny(tmp_path, **EVALUATED))
    assert [each["step"] for each in evaluations(folder)] == [2]
    assert (folder / "generator/model.safetensors").is_file()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "no evaluation of step 4, training goes on: fid cannot be computed of these features: "
        "no reason",
        "the evaluation of step 6 is not noted, training goes on: cannot write there: No space "
        "left on device",
    ]


def test_a_run_whose_average_collapsed_or_left_the_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = build(tiny(tmp_path, **EVALUATED))
    start(run)
    evaluator = Evaluations(run)
    for scale in (0.0, float("nan")):
        with torch.no_grad():
            for parameter in run.ema.module.parameters():
                parameter.mul_(scale)
        found, better = evaluator(run)
        if scale == 0:
            assert all(math.isfinite(value) for value in found["values"].values())
            assert found["values"]["recall"] == 0
    assert (found, better) == ({"values": {}}, False)
    assert caplog.messages == [
        "no evaluation of step 0, training goes on: 120 of 120 fakes are not finite: there is "
        "nothing to measure"
    ]


def test_keeping_the_best_is_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = build(tiny(tmp_path))
    start(run)
    root = tmp_path / "digits-001" / "checkpoints"
    keep_best(run, save(run), entry(2.0))
    run.step = 1
    second = save(run)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"could not keep .*00001 as the best: No space left"):
        keep_best(run, second, entry(1.0))
    monkeypatch.undo()
    kept = best_checkpoint(root)
    assert kept is not None
    assert kept.step == 0
    # Killed between the two renames: the older best is still found, and then replaced.
    (root / "best").rename(root / ".best-old")
    kept = best_checkpoint(root)
    assert kept is not None
    assert kept.step == 0
    keep_best(run, second, entry(1.0))
    kept = best_checkpoint(root)
    assert kept is not None
    assert kept.step == 1
    assert [path.name for path in root.glob(".*")] == []


def test_the_best_survives_where_files_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    run = build(tiny(tmp_path))
    start(run)
    keep_best(run, save(run), entry(2.0))
    assert best_checkpoint(tmp_path / "digits-001" / "checkpoints") is not None


def test_the_generator_that_is_chosen(tmp_path: Path) -> None:
    folder = gan.train(tiny(tmp_path, save_every=2))
    run = resume(folder)
    keep_best(run, folder / "checkpoints/step-00000004", entry(1.0))
    for which, role, step in (("newest", "ema", 6), ("newest", "generator", 6), ("best", "ema", 4)):
        generator, found = chosen_generator(folder, which, role)
        assert found == step
        saved = load_file(folder / f"checkpoints/step-{step:08d}/{role}.safetensors")
        assert all(torch.equal(saved[k], v) for k, v in generator.state_dict().items())
    assert chosen_generator(folder / "generator")[1] == 6
    with pytest.raises(CheckpointError, match="is an exported generator: the average of one step"):
        chosen_generator(folder / "generator", "best")
    shutil.rmtree(folder / "checkpoints/best")
    with pytest.raises(CheckpointError, match="has no best checkpoint; --evaluate_every keeps it"):
        chosen_generator(folder, "best")
    shutil.rmtree(folder / "checkpoints")
    assert chosen_generator(folder)[1] == 6  # the exported one is left


def test_the_page_shows_the_newest_evaluation_of_each_kind(tmp_path: Path) -> None:
    folder = gan.train(tiny(tmp_path, **EVALUATED))
    page = (folder / "generator/README.md").read_text(encoding="utf-8")
    newest = evaluations(folder)[-1]
    assert f"| fid | {newest['values']['fid']:.4g} |" in page
    assert page.count("| fid |") == 1
    assert "step 6" in page
    assert "![samples](samples.png)" in page
    assert f"gan.load_generator('{tmp_path.name}/digits-001')" in page
    assert "evaluate_every: 2" in page
    describe_generator(folder, saved_config(folder), "me/digits")
    assert "'me/digits'" in (folder / "generator/README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "{", "7", '[1, {"values": 0}]'])
def test_a_file_that_holds_no_evaluations_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "metrics.json").write_text(text, encoding="utf-8")
    assert evaluations(tmp_path) == []
    assert evaluations(tmp_path / "nowhere") == []


def test_held_out_images_are_those_of_the_other_part(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "both.npz", images=images[:20], images_test=images[20:])
    config = DataConfig(data=str(tmp_path / "both.npz"))
    data = gan.open_data(config.data)
    found = held_out(config, data)
    assert found is not None
    assert (len(data), len(found)) == (20, 10)
    assert torch.equal(found.images[:, 0], torch.from_numpy(images[20:, :, :, 0]))
    back = held_out(config, found, "train")
    assert back is not None
    assert back.fingerprint == data.fingerprint
    assert held_out(DataConfig(), gan.open_data("digits")) is None  # it has no other part


def test_a_run_is_known_to_be_running(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    mark_as_running(tmp_path)
    assert is_running(tmp_path)
    mark = tmp_path / ".running"
    node, pid, created = mark.read_text(encoding="utf-8").rsplit(" ", 2)
    for text, running in (
        (f"{node} {pid} 12", False),  # another process has its number now
        (f"{node} 99999999 {created}", False),
        (f"elsewhere {pid} 12", True),
        ("nonsense", False),
    ):
        mark.write_text(text, encoding="utf-8")
        assert is_running(tmp_path) is running, text
    mark_as_running(tmp_path, False)
    assert not mark.exists()


def test_two_processes_evaluate_alike(
    tmp_path: Path, two_processes: Callable[..., list[Any]]
) -> None:
    def train() -> tuple[list[float], bool]:
        run = build(tiny(tmp_path, batch_size=8, **EVALUATED))
        start(run)
        evaluator = Evaluations(run)
        found, better = evaluator(run)
        again, worse = evaluator(run)  # replaces the first one
        assert again["values"] == found["values"]
        return [found["values"]["fid"], float(better)], worse

    one, other = two_processes(train)
    assert one == other
    assert one[0][1] == 1
    assert one[1] is False
    noted = json.loads((tmp_path / "digits-001/metrics.json").read_text(encoding="utf-8"))
    assert len(noted) == 1
    alone = build(tiny(tmp_path, batch_size=16, **EVALUATED))
    start(alone)
    assert Evaluations(alone)(alone)[0]["values"]["fid"] == one[0][0]
