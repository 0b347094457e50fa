"""One Player: a transformer that learns to tell classes of texts apart.

It is the pattern of the GAN loop with one network: one `accelerator.prepare`, micro-batches, one
`step`. So it is exact where that is: into however many micro-batches and processes an update is
cut, at the tail of an epoch, and after a resume. Each process draws its own dropout: with dropout
a resume is exact, and another number of processes is another run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import broadcast_object_list
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from gan.errors import CheckpointError, ConfigError, GanError
from gan.player import Player
from gan.signals import stop_signals
from gan.text.batches import by_length, data_loader, encode
from gan.text.config import TextConfig
from gan.text.dataset import Texts
from gan.text.model import quiet
from gan.text.prepare import Prepared, prepare
from gan.text.scores import Scores
from gan.text_report import TextReporter
from gan.text_run import (
    MicroBatch,
    TextRun,
    build,
    load_best,
    resume,
    save,
    save_model,
    saved_config,
)
from gan.tracking import create_run_dir

__all__ = [
    "MicroBatch",
    "Player",
    "Prediction",
    "Prepared",
    "Scores",
    "TextConfig",
    "TextRun",
    "build",
    "evaluate",
    "fit",
    "load_best",
    "predict",
    "predict_logits",
    "prepare",
    "resume",
    "save",
    "save_model",
    "saved_config",
    "start",
    "train",
    "train_step",
]


def train(config: TextConfig) -> Path:
    """Train a text classifier.

    Args:
        config: what to do; `TextConfig()` needs no data and no download.

    Returns:
        Folder of the best model, for `AutoModelForSequenceClassification.from_pretrained`.

    Raises:
        GanError: the options, the texts, the model or the run folder cannot be used, or the
            training diverged.
    """
    run = build(config)
    start(run)
    fit(run)
    return run.output_dir


def train_step(
    accelerator: Accelerator, classifier: Player, window: Sequence[MicroBatch]
) -> dict[str, Tensor]:
    """One update of the classifier.

    Args:
        accelerator: the one that prepared it.
        classifier: a model with `logits` in what it returns, and its optimizer.
        window: the micro-batches of this process.

    Returns:
        Detached scalars of this process, by TensorBoard tag.
    """
    total = torch.zeros((), device=accelerator.device)
    for i, (inputs, labels, weight) in enumerate(window):
        with classifier.micro_batch(i, of=len(window)):
            logits = classifier.model(**inputs).logits
            loss = cross_entropy(logits, labels) * weight
            accelerator.backward(loss)
        total += loss.detach() / len(window)
    return {"loss/classifier": total, "grad_norm/classifier": classifier.step()}


def start(run: TextRun) -> None:
    """Give a new run its folder, with `config.yaml` in it.

    Args:
        run: a run at step 0.

    Raises:
        GanError: the folder cannot be made, or there is something in it or in `output_dir`.
    """
    answer: list[Any] = [None, ""]
    if run.accelerator.is_main_process:
        output = run.config.output_dir
        try:
            if (
                output is not None
                and output.exists()
                and (output.is_file() or any(output.iterdir()))
            ):
                raise ConfigError(f"output_dir: {output} is not empty; name a new folder")
            answer[0] = create_run_dir(run.config.runs_dir, "text", run.config.name)
            run.config.save(answer[0] / "config.yaml")
        except GanError as error:
            answer[1] = str(error)
    broadcast_object_list(answer)
    run.folder, problem = answer
    if problem:
        raise GanError(problem)


def fit(run: TextRun, until: int | None = None) -> int:
    """Train to the end of the run, to an early stop, or until a signal asks to stop.

    Args:
        run: a run with a folder, at any step.
        until: stop, with a checkpoint, after that step; None: at the end.

    Returns:
        0; after a signal, and a checkpoint, the signal's number.

    Raises:
        DivergenceError: a number stopped being finite; the last good checkpoint is kept.
        CheckpointError: a checkpoint could not be written.
    """
    config, last = run.config, min(until or run.steps, run.steps)
    with stop_signals() as received, TextReporter(run) as report:
        windows = run.windows()
        while run.step < last and not _waited_enough(run):
            scalars = train_step(run.accelerator, run.classifier, next(windows))
            run.step += 1
            stop = _agree(run.accelerator, received.number)
            done = stop > 0 or run.step == last
            evaluate_now = (
                _due(config.eval_every or run.order.windows, run) or run.step == run.steps
            )

            report.progress()
            if _due(config.log_every, run) or done:
                report.scalars(scalars)
            with report.paused():
                if evaluate_now:
                    scores = evaluate(run)
                    report.evaluation(scores)
                    _keep_best(run, scores)
                if done or (_due(config.save_every, run) if config.save_every else evaluate_now):
                    save(run)
            if stop:
                return stop
    return 0


def _due(every: int, run: TextRun) -> bool:
    return run.step % every == 0


def _agree(accelerator: Accelerator, number: int) -> int:
    """The signal that any process received."""
    if accelerator.num_processes == 1:
        return number
    return int(accelerator.gather(torch.tensor([number], device=accelerator.device)).max().item())


def _waited_enough(run: TextRun) -> bool:
    return run.config.patience is not None and run.waited >= run.config.patience


# --- what it has learned -------------------------------------------------------------------------


def evaluate(run: TextRun, part: str = "validation") -> Scores:
    """Judge the classifier on every text of a part, each once. Every process takes its share.

    Args:
        run: the run.
        part: validation, test or train; its texts have labels.

    Returns:
        The scores, the same on every process and for any number of processes.
    """
    labels = [example["label"] for example in run.examples[part]]
    return Scores.of(predict_logits(run, part), labels)


def predict_logits(run: TextRun, part: str = "test") -> Tensor:
    """Logits of every text of a part. Every process takes its share.

    Args:
        run: the run.
        part: validation, test or train.

    Returns:
        Shape (texts, classes), on the CPU, the same on every process.
    """
    return _logits(
        run.accelerator,
        run.model,
        run.tokenizer,
        run.examples[part],
        run.config.batch_size,
        run.pad_to,
    )


def _logits(
    accelerator: Accelerator | None,
    model: Any,
    tokenizer: Any,
    examples: Sequence[dict[str, Any]],
    batch_size: int,
    pad_to: int | None = None,
) -> Tensor:
    """The same batches on any number of processes, dealt in turn, so the same bits too."""
    process, processes = (
        (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
    )
    mine = by_length(examples, batch_size)[process::processes]
    logits = torch.zeros(len(examples), model.config.num_labels, device=model.device)
    training = model.training
    model.eval()
    with torch.no_grad():
        for rows, batch in zip(
            mine, data_loader(examples, mine, tokenizer, pad_to=pad_to), strict=True
        ):
            batch.pop("labels", None)
            logits[rows] = model(**batch.to(model.device)).logits.float()
    model.train(training)
    # Every row is zero on all processes but one.
    return (accelerator.reduce(logits) if accelerator else logits).cpu()


@dataclass(frozen=True)
class Prediction:
    """What a classifier says of some texts.

    Attributes:
        class_names: by label.
        probabilities: shape (texts, classes); every row sums to 1.
    """

    class_names: tuple[str, ...]
    probabilities: Tensor

    @property
    def classes(self) -> list[str]:
        """Name of the most probable class of each text."""
        return [self.class_names[label] for label in self.probabilities.argmax(dim=1).tolist()]


def predict(
    folder: Path | str, texts: Sequence[str | tuple[str, ...]], *, batch_size: int = 32
) -> Prediction:
    """Classify texts with a trained model.

    Args:
        folder: what `train` returned, or any folder of a transformers classifier.
        texts: strings, or pairs of strings for a model of pairs.
        batch_size: texts that are looked at together.

    Returns:
        Probabilities of the classes, in the order of the texts.

    Raises:
        CheckpointError: there is no such model.
    """
    try:
        with quiet():
            model = AutoModelForSequenceClassification.from_pretrained(folder).to(
                PartialState().device
            )
            tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} holds no model that classifies texts: {error}") from None
    names = tuple(model.config.id2label[label] for label in range(model.config.num_labels))
    if not texts:
        return Prediction(names, torch.zeros(0, len(names)))
    pairs = [(text,) if isinstance(text, str) else text for text in texts]
    examples = encode(tokenizer, Texts(pairs, None), min(tokenizer.model_max_length, 512))
    logits = _logits(None, model, tokenizer, examples, batch_size)
    return Prediction(names, logits.softmax(dim=1))


def _keep_best(run: TextRun, scores: Scores) -> None:
    """Put the model into `output_dir` if it is better than what is there."""
    value = scores.numbers()[run.config.metric]
    better = value if run.config.metric != "loss" else -value
    before = run.best if run.best is None or run.config.metric != "loss" else -run.best
    if before is not None and better <= before:
        run.waited += 1
        return
    run.best, run.best_step, run.waited = value, run.step, 0
    if run.accelerator.is_main_process:
        save_model(run, run.output_dir)
    run.accelerator.wait_for_everyone()
