"""Every kind of images behind one door: `open_data(source)` gives an `ImageData`.

Names are resolved when they are first used, so that a process that only decodes images never
imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gan.data.dataset import ImageData
    from gan.data.door import open_data
    from gan.data.report import Report, contact_sheet, describe

_HOME = {
    "ImageData": "gan.data.dataset",
    "Report": "gan.data.report",
    "contact_sheet": "gan.data.report",
    "describe": "gan.data.report",
    "open_data": "gan.data.door",
}

__all__ = ["ImageData", "Report", "contact_sheet", "describe", "open_data"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
