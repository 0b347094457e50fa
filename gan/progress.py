"""Progress bars, alike everywhere."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def progress_bar(*arguments: Any, **options: Any) -> Any:
    """A bar that moves ten times a second on a terminal, and every ten seconds in a file.

    Args:
        arguments: what `tqdm` takes.
        options: likewise.

    Returns:
        The bar, a `tqdm`.
    """
    seconds = 0.1 if sys.stderr.isatty() else 10.0
    bar: Any = tqdm
    return bar(*arguments, dynamic_ncols=True, mininterval=seconds, **options)
