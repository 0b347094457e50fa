"""Seconds of the phases of a step."""

from __future__ import annotations

import time

import pytest
import torch

from gan.stopwatch import Stopwatch


def test_phases_add_up_and_start_again(monkeypatch):
    clock = iter([0.0, 2.0, 2.0, 2.5, 10.0, 13.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    watch = Stopwatch(torch.device("cpu"))
    for name in ("long", "short", "long"):
        with watch.phase(name):
            pass
    assert watch.read() == {"long": 5.0, "short": 0.5}
    assert watch.read() == {}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs: a GPU")
def test_on_a_gpu_the_device_is_timed():
    device = torch.device("cuda")
    watch = Stopwatch(device)
    x = torch.randn(4096, 4096, device=device)
    with watch.phase("product"):
        for _ in range(20):
            x = x @ x.softmax(1)
    assert watch.read()["product"] > 0
