"""A headless Chromium for tests and benchmarks, spoken to through its DevTools over a pipe: no driver, no port."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PROBE = Path(__file__).with_name("probe.js")
PATIENCE = 60.0  # seconds for one answer
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--mute-audio",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def browser() -> str | None:
    """The program, if this machine has one."""
    return os.environ.get("PLANNER_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One process with one page."""

    def __init__(self, program: str) -> None:
        self.home = tempfile.mkdtemp(prefix="planner-chromium-")
        out_read, self.to = os.pipe()
        self.back, in_write = os.pipe()
        rootless = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        shell = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'  # Chromium reads descriptor 3 and writes descriptor 4
        flags = [*FLAGS, *rootless, f"--user-data-dir={self.home}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", str(out_read), str(in_write), program, *flags],
            pass_fds=(out_read, in_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(out_read)
        os.close(in_write)
        self.number, self.rest, self.events = 0, b"", []
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    session: str | None = None

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what else happens meanwhile is kept in `events`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def message(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            if not select.select([self.back], [], [], PATIENCE)[0]:
                raise TimeoutError("Chromium does not answer")
            piece = os.read(self.back, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self.rest += piece
        text, _, self.rest = self.rest.partition(b"\0")
        found = json.loads(text)
        if "method" in found:
            self.events.append(found)
        return found

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False, phone: bool = False) -> int:
        """Show a file; milliseconds until its script had drawn."""
        scale = 2 if phone else 1
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        self.ask("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.load(page)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            ready = self.run("document.documentElement.dataset.ready || ''")
            if ready:
                self.run(PROBE.read_text(encoding="utf-8"))
                return int(ready)
            time.sleep(0.01)
        raise TimeoutError(f"{page} never became ready: {self.complaints()}")

    def load(self, page: Path) -> None:
        """Go to a file and wait for it to be there."""
        for address in ("about:blank", page.resolve().as_uri()):
            self.events.clear()
            self.ask("Page.navigate", url=address)
            while not any(event["method"] == "Page.loadEventFired" for event in self.events):
                self.message()

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", script))
        return answer["result"].get("value")

    def settle(self) -> None:
        """Let what was asked for be drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, **({} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}))
        self.settle()

    def touch(self, path: list[list[tuple[float, float]]]) -> None:
        """Fingers from place to place, then lifted."""
        for at, fingers in enumerate(path):
            points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(fingers)]
            self.ask("Input.dispatchTouchEvent", type="touchMove" if at else "touchStart", touchPoints=points)
            self.settle()
        self.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()

    def complaints(self) -> list[str]:
        """Errors and warnings of the page so far."""
        said = [str(e["params"]["entry"].get("text")) for e in self.events if e["method"] == "Log.entryAdded"]
        said += [str(e["params"]["exceptionDetails"]) for e in self.events if e["method"] == "Runtime.exceptionThrown"]
        return said + [str(e["params"]["args"]) for e in self.events if e["method"] == "Runtime.consoleAPICalled"]

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        try:
            self.session = None
            self.ask("Browser.close")
            self.process.wait(10)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.home, ignore_errors=True)
