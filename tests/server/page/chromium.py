"""A real Chromium, driven by the DevTools protocol: mouse and keys as a user has them, screenshots."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from websockets.sync.client import ClientConnection, connect

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync --hide-scrollbars "
    "--no-zygote --no-proxy-server --force-color-profile=srgb --remote-debugging-port=0"
).split()
PATIENCE = 90.0  # seconds, on a slow machine
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell")
_KEYS = {
    "Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "ArrowDown": (40, ""), "ArrowUp": (38, ""),
    "ArrowRight": (39, ""), "ArrowLeft": (37, ""),
}  # fmt: skip
_MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}


def executable() -> str | None:
    """The machine's Chromium: TOCSIN_CHROMIUM, or one of the usual names."""
    given = os.environ.get("TOCSIN_CHROMIUM")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """A tab. Selectors are CSS; everything waits until it is there."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol; messages about errors in the page are kept."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message["method"] == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "?"))
        if message["method"] == "Log.entryAdded" and params["entry"]["source"] == "security":
            self.errors.append(params["entry"]["text"])

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in found, (script, found["exceptionDetails"])
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = PATIENCE) -> Any:
        """Wait until an expression is true."""
        end = monotonic() + seconds
        while not (found := self.evaluate(script)):
            assert monotonic() < end, f"not within {seconds} s: {script}\n{self.text('main')}"
            sleep(0.03)
        return found

    def open(self, url: str) -> None:
        """Load a page."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def text(self, selector: str) -> str:
        """The visible text of an element; empty without one."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def see(self, selector: str, text: str = "", seconds: float = PATIENCE) -> str:
        """Wait until an element is visible and has a text."""
        self.wait(
            f"[...document.querySelectorAll({json.dumps(selector)})].some(e => e.checkVisibility() && "
            f"(e.innerText + (e.value ?? '')).includes({json.dumps(text)}))",
            seconds,
        )
        return self.text(selector)

    def watch(self, *selectors: str) -> None:
        """Remember from now on what elements say, also those that are there for a moment only."""
        self.evaluate(
            "(selectors => { window.seen?.observer.disconnect(); const texts = {}; const look = () => { "
            "for (const s of selectors) for (const e of document.querySelectorAll(s)) "
            "(texts[s] ??= new Set()).add(e.innerText); }; const observer = new MutationObserver(look); "
            "observer.observe(document.body, { subtree: true, childList: true, attributes: true }); "
            f"window.seen = {{ texts, observer }}; look(); }})({json.dumps(selectors)})"
        )

    def has_seen(self, selector: str, text: str) -> None:
        """Wait until an element that is watched has had a text."""
        texts = f"[...(window.seen.texts[{json.dumps(selector)}] ?? [])]"
        self.wait(f"{texts}.some(t => t.includes({json.dumps(text)}))")

    def click(self, selector: str, text: str = "") -> None:
        """Click at the middle of the first visible element with a text."""
        self.see(selector, text)
        x, y = self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'nearest'}}); const b = e.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2]; })"
            f"([...document.querySelectorAll({json.dumps(selector)})].find(e => e.checkVisibility() && "
            f"(e.innerText + (e.value ?? '')).includes({json.dumps(text)})))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press a key, as `Control+Enter`."""
        *held, name = key.split("+")
        code, text = _KEYS[name] if name in _KEYS else (ord(name.upper()), name)
        modifiers = sum(_MODIFIERS[one] for one in held)
        said = {} if modifiers & ~8 or not text else {"text": text}
        named = {"key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **named, **said)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def write(self, selector: str, text: str) -> None:
        """Replace what a field has by typed text."""
        self.click(selector)
        self.evaluate("document.activeElement.select()")
        self.call("Input.insertText", text=text)

    def shot(self, path: Path) -> None:
        """A screenshot of what is visible."""
        data = self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))

    def show(self, width: int, height: int, scheme: str = "light") -> None:
        """The size of the window, and whether it is light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=False,
        )  # fmt: skip
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A tab of a browser with a new profile in a folder."""
    path = executable()
    assert path is not None
    with open(folder / "chromium.log", "wb") as log:
        process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"], stdout=log, stderr=log
        )
        try:
            address = _address(folder / "profile" / "DevToolsActivePort", process)
            with connect(address, max_size=1 << 26, ping_interval=None) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(file: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the first tab listens."""
    import httpx

    end = monotonic() + PATIENCE
    while not (file.exists() and file.read_text().count("\n")):
        assert process.poll() is None and monotonic() < end, "Chromium does not start"
        sleep(0.05)
    port = int(file.read_text().split("\n")[0])
    tabs = httpx.get(f"http://127.0.0.1:{port}/json/list", timeout=30, trust_env=False).json()
    return next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
