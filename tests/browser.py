"""A headless Chromium, driven over two pipes with the DevTools protocol: no driver, no package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

EVERYTHING = """
(() => {
  const found = {text: "", pictures: 0, lines: 0};
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE) found.text += node.data + "\\n";
    if (node.tagName === "IMG" && node.complete && node.naturalWidth > 1) found.pictures += 1;
    if (node.tagName === "path" && node.classList.contains("line") && node.getTotalLength() > 20)
      found.lines += 1;
    if (["STYLE", "SCRIPT"].includes(node.tagName)) return;
    if (node.shadowRoot) walk(node.shadowRoot);
    if (node.tagName === "IFRAME" && node.contentDocument) walk(node.contentDocument);
    node.childNodes.forEach(walk);
  };
  walk(document);
  return found;
})()
"""
"""What is on the page, inside web components and frames too; lines are those of curves."""


def find_chromium() -> str:
    """Path of the browser; skips the test where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("needs: chromium (apt-get install chromium)")


@contextmanager
def tensorboard(logdir: Path) -> Iterator[str]:
    """Address of a TensorBoard server of its own."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", logdir.name]
    command += ["--port", "0", "--host", "127.0.0.1", "--load_fast", "false"]
    server = subprocess.Popen(
        command,
        cwd=logdir.parent,  # so that the page shows no more of its path
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        said = ""
        while (found := re.search(r"at (http://\S+)", said)) is None:
            line = server.stderr.readline()
            assert line, f"TensorBoard did not start:\n{said}"
            said += line
        yield found[1]
    finally:
        server.kill()
        server.communicate()


def _high(descriptor: int) -> int:
    """The same open file under a number above those that the browser's own will take."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)
    os.close(descriptor)
    return high


class Browser:
    """One page in a browser of its own. Use it as a context."""

    def __init__(self, profile: Path, width: int = 1280, height: int = 860) -> None:
        self._profile, self._size = profile, (width, height)
        self._count, self._buffer = 0, b""

    def __enter__(self) -> Browser:
        theirs, self._write = os.pipe()
        read_theirs = _high(theirs)
        self._read, theirs = os.pipe()
        write_theirs = _high(theirs)
        flags = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
        flags += "--disable-extensions --disable-background-networking --remote-debugging-pipe "
        flags += "--hide-scrollbars --force-device-scale-factor=1 "
        flags += f"--window-size={self._size[0]},{self._size[1]} --user-data-dir={self._profile}"
        # The browser reads from 3 and writes to 4.
        script = f'exec "$0" {flags} 3<&{read_theirs} 4>&{write_theirs}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, find_chromium()],
            pass_fds=(read_theirs, write_theirs),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read_theirs)
        os.close(write_theirs)
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        width, height = self._size
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        os.close(self._read)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def call(self, method: str, timeout: float = 60, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its answer."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            while b"\0" not in self._buffer:
                left = deadline - time.monotonic()
                ready, _, _ = select.select([self._read], [], [], max(left, 0))
                assert ready, f"the browser does not answer {method}"
                part = os.read(self._read, 1 << 20)
                assert part, f"the browser ended before it answered {method}"
                self._buffer += part
            line, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def open(self, address: str) -> None:
        """Go to a page, from an empty one: a change of the part after # alone loads nothing."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)

    def evaluate(self, script: str) -> Any:
        """Value of a JavaScript expression."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        return answer["result"].get("value")

    def wait_for(self, *words: str, pictures: int = 0, lines: int = 0, timeout: float = 90) -> str:
        """Text of the page, once it holds all words, and so many pictures and drawn lines."""
        deadline = time.monotonic() + timeout
        while True:
            found = self.evaluate(EVERYTHING) or {"text": "", "pictures": 0, "lines": 0}
            missing = [word for word in words if word not in found["text"]]
            enough = found["pictures"] >= pictures and found["lines"] >= lines
            if not missing and enough:
                return str(found["text"])
            assert time.monotonic() < deadline, (
                f"not on the page: {missing}; {found['pictures']} pictures, {found['lines']} lines;"
                f" there is:\n{found['text'][:3000]}"
            )
            time.sleep(0.3)

    def screenshot(self, path: Path) -> None:
        """What a person would see, as a PNG."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))
