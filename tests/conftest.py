"""What every test shares: fresh Accelerate state, fixed seeds, two real processes, honest skips.

A test that needs more than a package index gives skips where that is missing, with a reason that
begins with "needs:" and names what to install. Where the environment variable
GAN_TESTS_INSTALLED lists that name, the skip is a failure: it was installed, and did not help.
"""

from __future__ import annotations

import faulthandler
import os
import random
import re
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from accelerate import Accelerator, PartialState, debug_launcher
from accelerate.state import AcceleratorState, GradientState

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts the four idx files."""


def reset_accelerate() -> None:
    """Accelerate keeps its state in class attributes, so one test would decide the next one's."""
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    """Every test starts alone, seeded, and on one thread: at these sizes two are slower."""
    reset_accelerate()
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - third-party code draws from it
    torch.manual_seed(0)
    torch.set_num_threads(1)
    yield
    reset_accelerate()


@pytest.fixture
def cpu_accelerator() -> Accelerator:
    """An Accelerator on the CPU that leaves the schedulers to the Players."""
    return Accelerator(cpu=True, step_scheduler_with_optimizer=False)


# --- two processes -------------------------------------------------------------------------------


def _one_rank(
    function: Callable[..., Any], args: tuple[Any, ...], folder: Path, timeout: float
) -> None:
    # A rank that hangs prints where, and ends; its end makes the launcher end the other one.
    faulthandler.dump_traceback_later(timeout, exit=True, file=sys.__stderr__)
    torch.set_num_threads(1)
    state = PartialState(cpu=True)
    assert state.num_processes == 2, f"{state.num_processes} processes instead of 2"
    rank = state.process_index
    torch.save(function(*args), folder / f"{rank}.pt")
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def two_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[Any]]:
    """`two_processes(function, *args, timeout=120)` gives what each rank returned, in rank order.

    The processes are forks, so `function` may be a closure. What it raises fails the test.
    """
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def launch(function: Callable[..., Any], *args: Any, timeout: float = 120) -> list[Any]:
        folder = tmp_path_factory.mktemp("ranks")
        reset_accelerate()
        # A fork would wait for the thread of pytest's own timer, which it does not have.
        faulthandler.cancel_dump_traceback_later()
        with warnings.catch_warnings():
            # Python 3.12 and newer warn of a fork beside torch's idle worker threads.
            warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
            debug_launcher(_one_rank, (function, args, folder, timeout), num_processes=2)
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]

    return launch


# --- what a test needs ---------------------------------------------------------------------------


@pytest.fixture
def requires_fashion_mnist() -> Path:
    """The folder with Fashion-MNIST's idx files."""
    if not FASHION_MNIST.is_dir():
        pytest.skip("needs: dataset-fashion-mnist (apt-get install dataset-fashion-mnist)")
    return FASHION_MNIST


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs: a GPU"))
        if item.get_closest_marker("network") and os.environ.get("GAN_TESTS_NETWORK") != "1":
            item.add_marker(pytest.mark.skip(reason="needs: the network (GAN_TESTS_NETWORK=1)"))


def why_not_to_skip(reason: str, installed: list[str]) -> str | None:
    """Return what is wrong with a reason for skipping, or None."""
    if not reason.startswith("needs: "):
        return f"a skip says what it needs, as in 'needs: a GPU'; this one says {reason!r}"
    words = re.findall(r"[\w.+-]+", reason)
    present = [name for name in installed if name in words]
    return f"skipped although {present[0]} is installed: {reason!r}" if present else None


def _fail_dishonest_skip(report: Report) -> Report:
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        problem = why_not_to_skip(reason, os.environ.get("GAN_TESTS_INSTALLED", "").split())
        if problem is not None:
            report.outcome, report.longrepr = "failed", problem
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _fail_dishonest_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _fail_dishonest_skip((yield))
