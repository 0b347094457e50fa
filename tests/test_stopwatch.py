"""Seconds of the phases of a step."""

from __future__ import annotations

import time

import pytest
import torch

from gan.stopwatch import Stopwatch


def test_phases_add_up_and_start_again():
    watch = Stopwatch(torch.device("cpu"))
    for _ in range(2):
        with watch.phase("long"):
            time.sleep(0.02)
        with watch.phase("short"):
            pass
    seconds = watch.read()
    assert list(seconds) == ["long", "short"]
    assert seconds["long"] >= 0.04 > seconds["short"] >= 0
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
