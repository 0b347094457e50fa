"""Real English text that every Python installation carries: the docstrings of its standard library.

Each is labelled by the part of the library that it comes from. The group of a text is its module,
so that what is held out comes from modules that training has not seen.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from gan.errors import DataError
from gan.text.table import Table

PARTS = {
    "concurrency": (
        "asyncio concurrent multiprocessing queue sched selectors subprocess threading contextvars "
        "_threading_local"
    ),
    "development": (
        "ast bdb code codeop cProfile dis doctest idlelib importlib inspect modulefinder pdb "
        "pkgutil profile pstats py_compile pyclbr pydoc runpy symtable timeit tokenize trace "
        "traceback unittest"
    ),
    "files": (
        "bz2 configparser csv dbm filecmp fileinput fnmatch genericpath glob gzip json lzma netrc "
        "ntpath os pathlib pickle plistlib posixpath shelve shutil stat tarfile tempfile tomllib "
        "wave xml zipfile _pyio"
    ),
    "graphics": "tkinter turtle turtledemo",
    "internet": (
        "cgi email ftplib html http imaplib ipaddress mailbox mimetypes nntplib poplib smtplib "
        "socket socketserver ssl telnetlib urllib uuid webbrowser wsgiref xmlrpc"
    ),
    "numbers": "_pydecimal _pydatetime calendar datetime fractions numbers random statistics",
}
"""Parts of the library and their modules; no Python version has all of them."""

_SHORTEST = 40
_TESTS = {"test", "tests", "idle_test"}


def python_docs() -> Table:
    """Docstrings of the standard library of this Python.

    Returns:
        A table with text, label and group. Equal texts are there once.

    Raises:
        DataError: this installation has no sources of the library.
    """
    root = Path(sysconfig.get_path("stdlib"))
    rows: dict[str, dict[str, str]] = {}
    for label, modules in PARTS.items():
        for module in modules.split():
            for file in sorted([*(root / module).rglob("*.py"), *root.glob(f"{module}.py")]):
                group = file.relative_to(root)
                if not _TESTS & set(group.parts):
                    for text in _docstrings(file):
                        row = {"text": text, "label": label, "group": group.as_posix()}
                        rows.setdefault(text, row)
    if (
        len({row["label"] for row in rows.values()}) < 4
    ):  # graphics, say, may be a package of its own
        raise DataError(
            f"dataset: python-docs: {root} holds too few sources of the standard library; "
            "on some systems they are a package of their own. --train_file takes texts of yours"
        )
    places = [f"{row['group']}, docstring {i}" for i, row in enumerate(rows.values())]
    return Table("python-docs", ("text", "label", "group"), list(rows.values()), places)


def _docstrings(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        nodes.extend(getattr(node, "body", ()) if not isinstance(node, ast.expr) else ())
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = " ".join((ast.get_docstring(node) or "").split())
            if len(text) >= _SHORTEST:
                yield text
