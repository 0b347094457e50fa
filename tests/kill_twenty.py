"""Kill a training process twenty times with SIGKILL: `python tests/kill_twenty.py`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from test_resume import survive

if __name__ == "__main__":
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        steps = survive(Path(folder), kills=20)
    print(f"newest checkpoint after each kill: {steps}")
    print(
        f"20 kills, 20 resumes, weights bitwise equal to an uninterrupted run of {steps[-1] + 3} "
        f"steps; {time.perf_counter() - begin:.0f} s"
    )
