"""A page without network inspection. Playwright watches the network of its own pages and so copies every body, which at 16 MB takes longer than opening a head."""

from __future__ import annotations

import json
import time
from typing import Any

from playwright.sync_api import Browser

from .browsing import renderer_bytes

WINDOW = {"width": 1440, "height": 900}
POLL_S = 0.02


class BarePage:
    """A page in a browser context of its own, which is only navigated and asked to evaluate scripts."""

    def __init__(self, browser: Browser, address: str, timeout_ms: float) -> None:
        self._whole, self._timeout = browser.new_browser_cdp_session(), timeout_ms / 1000
        self._answers: dict[int, dict[str, Any]] = {}
        self._asked = 0
        self._whole.on("Target.receivedMessageFromTarget", self._receive)
        context = self._whole.send("Target.createBrowserContext")["browserContextId"]
        self._target = self._whole.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})[
            "targetId"
        ]
        # Only messages within messages reach a page that Playwright does not know.
        self._session = self._whole.send("Target.attachToTarget", {"targetId": self._target, "flatten": False})[
            "sessionId"
        ]
        self._send("Emulation.setDeviceMetricsOverride", **WINDOW, deviceScaleFactor=1, mobile=False)
        self._send("Page.navigate", url=address)

    def run(self, script: str, *arguments: object) -> Any:
        """Return what a function of the page returns, once it settles. Raises RuntimeError if it throws."""
        call = f"({script})({', '.join(json.dumps(argument) for argument in arguments)})"
        answer = self._send("Runtime.evaluate", expression=call, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def on(self, selector: str, script: str, *arguments: object) -> Any:
        """Run a function of an element and further arguments."""
        return self.run(
            f"(selector, ...rest) => ({script})(document.querySelector(selector), ...rest)", selector, *arguments
        )

    def size(self) -> tuple[int, int]:
        """Return the number of DOM nodes, and the bytes of memory of the largest page."""
        return int(self.run("() => document.querySelectorAll('*').length")), renderer_bytes(self._whole)

    def close(self) -> None:
        """Close the page."""
        self._whole.send("Target.closeTarget", {"targetId": self._target})

    def _send(self, method: str, **parameters: object) -> dict[str, Any]:
        self._asked += 1
        message = json.dumps({"id": self._asked, "method": method, "params": parameters})
        self._whole.send("Target.sendMessageToTarget", {"sessionId": self._session, "message": message})
        end = time.monotonic() + self._timeout
        while self._asked not in self._answers:
            assert time.monotonic() < end, f"no answer to {method}"
            self._whole.send("Browser.getVersion")  # Playwright hands out messages only while it waits for one
            time.sleep(POLL_S)
        answer = self._answers.pop(self._asked)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self, event: dict[str, Any]) -> None:
        if event["sessionId"] == self._session:
            message = json.loads(event["message"])
            self._answers[message.get("id", 0)] = message
