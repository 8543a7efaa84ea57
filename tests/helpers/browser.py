"""A real browser for tests of pages: headless Chromium, spoken to over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tornado.websocket import websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0", "about:blank",
)  # fmt: skip


@dataclass
class Visit:
    """What the browser saw of a page."""

    value: object = None  # of the expression that was asked for
    complaints: list[str] = field(default_factory=list)  # errors and warnings of the console
    requests: list[str] = field(default_factory=list)  # addresses asked for
    picture: bytes = b""


def visit(
    address: str, expression: str = "0", width: int = 1200, height: int = 900, dark: bool = False, whole: bool = False
) -> Visit:
    """Open a page in a window of so many pixels, wait for it, evaluate an expression; `whole` pictures all of it."""
    command = next((found for name in NAMES if (found := shutil.which(name))), None)
    if command is None:
        pytest.skip("no Chromium is installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen([command, *FLAGS, f"--user-data-dir={profile}"], stderr=subprocess.PIPE, text=True)
        try:
            assert browser.stderr is not None
            line = next(line for line in browser.stderr if "DevTools listening on" in line)
            scheme = "dark" if dark else "light"
            return asyncio.run(_visit(line.split()[-1], address, expression, width, height, scheme, whole))
        finally:
            browser.kill()
            browser.communicate()


async def _visit(
    socket: str, address: str, expression: str, width: int, height: int, scheme: str, whole: bool
) -> Visit:
    line = await websocket_connect(socket, max_message_size=2**28)
    seen, number, session = Visit(), 0, None

    async def read() -> dict:
        message = json.loads(await asyncio.wait_for(line.read_message(), 60))
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            seen.complaints.append(params["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            seen.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            seen.complaints.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            seen.requests.append(params["request"]["url"])
        return message

    async def call(method: str, **params: object) -> dict:
        nonlocal number
        number += 1
        wanted = number
        message = {"id": wanted, "method": method, "params": params}
        await line.write_message(json.dumps(message | ({"sessionId": session} if session else {})))
        while (answer := await read()).get("id") != wanted:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    target = (await call("Target.createTarget", url="about:blank"))["targetId"]
    session = (await call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        await call(f"{domain}.enable")
    await call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    await call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    await call("Page.navigate", url=address)
    while (await read()).get("method") != "Page.loadEventFired":
        pass
    answer = await call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
    seen.value = answer["result"].get("value")
    shot = await call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
    seen.picture = base64.b64decode(shot["data"])
    line.close()
    while await asyncio.wait_for(line.read_message(), 60) is not None:
        pass  # until the browser has closed its end too
    return seen


def save(address: str, path: str | Path, **options: object) -> Visit:
    """Picture a page, to be looked at."""
    seen = visit(address, **options)  # type: ignore[arg-type]
    Path(path).write_bytes(seen.picture)
    return seen
