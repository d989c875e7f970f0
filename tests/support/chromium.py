"""Debian's Chromium without a screen, driven by the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from aiohttp import ClientSession, ClientWebSocketResponse

WITHIN_S: Final = 20.0


def chromium() -> str | None:
    """Where it is; ``None``: it is not installed (``dev/install-node-prerequisites``)."""
    return shutil.which("chromium")


class Browser:
    """One browser with one tab, and a profile of its own that goes with it. Enter it to start it."""

    def __init__(self, width: int = 1280, height: int = 860) -> None:
        self._size = f"{width},{height}"
        self._folder = tempfile.TemporaryDirectory(prefix="tidegate-chromium-")
        self._loop = asyncio.new_event_loop()
        self._ids = 0
        self.console: list[str] = []
        """What pages have complained of: errors, and violations of their Content-Security-Policy."""
        self.requests: list[str] = []
        """URLs that were asked for."""

    def __enter__(self) -> Self:
        binary = chromium()
        if binary is None:
            raise FileNotFoundError("chromium")
        arguments = [
            "--headless=new",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ]
        arguments += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-pings"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # Chromium's own sandbox does not start as root
        self._process = subprocess.Popen(
            [
                binary,
                *arguments,
                f"--user-data-dir={self._folder.name}",
                f"--window-size={self._size}",
                "--remote-debugging-port=0",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._loop.run_until_complete(self._connect())
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._session.close())
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._loop.close()
        # Children of the browser may still write into its profile.
        shutil.rmtree(self._folder.name, ignore_errors=True)

    async def _connect(self) -> None:
        chosen = Path(self._folder.name) / "DevToolsActivePort"
        until = time.monotonic() + WITHIN_S
        while not chosen.exists() or not chosen.read_text().strip():
            if time.monotonic() > until:
                raise TimeoutError("chromium did not say at which port it is driven")
            await asyncio.sleep(0.05)
        port = int(chosen.read_text().split()[0])
        self._session = ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            tabs = await answer.json(content_type=None)
        tab = next(each for each in tabs if each["type"] == "page")
        self._socket: ClientWebSocketResponse = await self._session.ws_connect(
            tab["webSocketDebuggerUrl"], max_msg_size=0
        )

    def send(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        """The browser's answer. Raises ``RuntimeError`` for one that is an error."""
        return self._loop.run_until_complete(self._send(method, parameters))

    async def _send(self, method: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._ids += 1
        mine = self._ids
        await self._socket.send_json({"id": mine, "method": method, "params": parameters})
        while True:
            said = json.loads(await asyncio.wait_for(self._socket.receive_str(), WITHIN_S))
            if said.get("id") == mine:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                result: Mapping[str, Any] = said["result"]
                return result
            self._note(said)

    def _note(self, said: Mapping[str, Any]) -> None:
        given = said.get("params", {})
        match said.get("method"):
            case "Log.entryAdded":
                self.console.append(f"{given['entry']['level']}: {given['entry']['text']}")
            case "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                self.console.append(f"error: {details.get('exception', {}).get('description', details['text'])}")
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])
            case _:
                pass

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """What the expression is, as JSON; a promise is waited for."""
        said = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise RuntimeError(f"{script}: {said['exceptionDetails']}")
        return said["result"].get("value")

    def until(self, script: str, what: str, within_s: float = WITHIN_S) -> None:
        """Polls until the expression is true."""
        until = time.monotonic() + within_s
        while not self.run(f"Boolean({script})"):
            if time.monotonic() > until:
                raise AssertionError(f"not in time: {what}; the page says: {self.run('document.body.innerText')!r}")
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """One key, as a person presses it."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40}
        more = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def look(self, *, dark: bool = False, width: int = 1280, height: int = 860) -> None:
        """Like this, as the system of whoever looks is set."""
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))
