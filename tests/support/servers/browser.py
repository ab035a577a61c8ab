"""A web page in headless Chromium, over the pipe of its DevTools protocol, for tests of what people see and do."""

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"),
    "--hide-scrollbars",  # pictures are taken without them
)
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
"""Windows' codes of keys, by which Chromium knows them."""
_FIRST_FREE_DESCRIPTOR = 10

_LIMIT_S = 300
"""After which a browser that hangs is ended."""


def _find_hindrance() -> str:
    """The reason that there can be no browser here; empty if there can."""
    if _PROGRAM is None:
        return "chromium is not installed"
    tried = subprocess.run([_PROGRAM, "--version"], capture_output=True)  # some distributions install a file that only says how
    return f"chromium does not run here: {tried.stderr.decode(errors='replace').strip()}" if tried.returncode else ""


needs_browser = pytest.mark.skipif(bool(hindrance := _find_hindrance()), reason=f"pages are not looked at: {hindrance}")


class Browser:
    """One tab of a browser. Methods return when the browser has done what they say."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = os.fdopen(commands, "wb")
        self._answers = os.fdopen(answers, "rb")
        self._numbers = itertools.count(1)
        self._events: list[dict[str, Any]] = []
        self._session = ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")

    def prefer(self, scheme: str, medium: str = "screen") -> None:
        """Show pages as to a person who prefers `light` or `dark`, on a `screen` or in `print`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", media=medium, features=features)

    def open(self, page: Path | str, width: int, height: int = 800, scale: float = 1) -> None:
        """Open a file, or an address, in a window of this size; `scale` is in dots for each of its units."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self._call("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)
        self._events.clear()
        self._call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._read())

    def photograph(self) -> bytes:
        """A screenshot of the window, as PNG, without what is below the end of the page."""
        shown = {"width": "innerWidth", "height": "Math.min(innerHeight, document.body.offsetHeight)"}
        clip = {"x": 0, "y": 0, "scale": 1} | {side: self.evaluate(size) for side, size in shown.items()}
        return base64.b64decode(self._call("Page.captureScreenshot", format="png", clip=clip)["data"])

    def evaluate(self, script: str) -> Any:
        """The value of an expression in JavaScript."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, control: bool = False) -> None:
        """Press a key, perhaps with Ctrl, and let it go."""
        text = "" if control else {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = "Space" if key == " " else f"Key{key.upper()}" if len(key) == 1 else key
        event = {"key": key, "code": code, "windowsVirtualKeyCode": _KEYS.get(key) or ord(key.upper()), "modifiers": 2 * control}
        self._call("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text: str) -> None:
        """Put text where the cursor is, in place of what is selected."""
        self._call("Input.insertText", text=text)

    def wait_for(self, condition: str) -> None:
        """Return when an expression in JavaScript is true."""
        deadline = time.monotonic() + _LIMIT_S / 10
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, f"{condition}: not within {_LIMIT_S / 10} s"
            time.sleep(0.05)

    def close(self) -> None:
        """End the browser."""
        self._call("Browser.close")
        self._commands.close()
        self._answers.close()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != number:
            self._events.append(answer)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        parts: list[bytes] = []
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            parts.append(byte)
        return json.loads(b"".join(parts))


@contextmanager
def open_browser() -> Generator[Browser]:
    """A browser with a profile of its own, which ends with the block."""
    assert _PROGRAM
    (commands_out, commands_in), (answers_out, answers_in) = os.pipe(), os.pipe()
    given = [fcntl.fcntl(number, fcntl.F_DUPFD, _FIRST_FREE_DESCRIPTOR) for number in (commands_out, answers_in)]
    for number in (commands_out, answers_in):
        os.close(number)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        start = f'exec "$0" "$@" 3</proc/self/fd/{given[0]} 4>/proc/self/fd/{given[1]}'  # the descriptors that the protocol has
        command = ["sh", "-c", start, _PROGRAM, *_FLAGS, f"--user-data-dir={profile}"]
        with subprocess.Popen(command, pass_fds=given, stderr=subprocess.DEVNULL) as process:
            for number in given:
                os.close(number)
            limit = threading.Timer(_LIMIT_S, process.kill)
            limit.start()
            try:
                browser = Browser(commands_in, answers_out)
                yield browser
                browser.close()
            finally:
                limit.cancel()
                process.kill()
