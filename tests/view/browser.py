"""A headless Chromium, driven through chromedriver's HTTP interface (W3C WebDriver) by the standard library alone."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1400,1000",
)


class Browser:
    """One session; `requests` and `complaints` say what the page did since the last call."""

    def __init__(self, profile: Path, *, dark: bool = False) -> None:
        binary = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
        driver = shutil.which("chromedriver")
        if binary is None or driver is None:
            pytest.skip("no chromium with chromedriver on this machine")
        self._process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            self._base = f"http://127.0.0.1:{self._port()}"
            switches = [*SWITCHES, f"--user-data-dir={profile}"]
            switches += ["--blink-settings=preferredColorScheme=0"] if dark else []
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": {"binary": binary, "args": switches},
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
            session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._base += f"/session/{session['sessionId']}"
        except BaseException:
            self.close()
            raise

    def open(self, page: Path, fragment: str = "") -> None:
        self._call("POST", "/url", {"url": page.as_uri() + (f"#{fragment}" if fragment else "")})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a function body in the page."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str) -> Any:
        """What a function body gives to its first argument, a function."""
        return self._call("POST", "/execute/async", {"script": script, "args": []})

    def wait_for(self, condition: str) -> None:
        """Until an expression is true; the driver gives up after its script timeout of 30 s."""
        self.run_async(f"const look = () => ({condition}) ? arguments[0](1) : setTimeout(look, 20); look();")

    def click(self, selector: str) -> None:
        self._call("POST", f"/element/{self._element(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        self._call("POST", f"/element/{self._element(selector)}/value", {"text": text})

    def resize(self, width: int, height: int) -> None:
        self._call("POST", "/window/rect", {"width": width, "height": height})

    def complaints(self) -> list[str]:
        """Everything on the console at level warning or worse: errors, blocked scripts, refused loads."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Addresses of all requests."""
        entries = self._call("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        try:
            if hasattr(self, "_base") and "/session/" in self._base:
                self._call("DELETE", "", None)
        finally:
            self._process.terminate()
            self._process.wait(20)
            if self._process.stdout:
                self._process.stdout.close()

    def _element(self, selector: str) -> str:
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        return str(next(iter(found.values())))

    def _port(self) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := re.search(rb"started successfully on port (\d+)", line):
                return int(match[1])
        raise AssertionError("chromedriver did not start")

    def _call(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error.read().decode()[:600]}") from None
