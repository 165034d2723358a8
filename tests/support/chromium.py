"""The Chromium of this machine, as tests, benchmarks and the pictures of the docs drive it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The popup of the address bar is a page of its own, in each window: as much work as the page under test. Chromium reads only the last list of features, so
    # this one repeats those of Playwright's that its driver relies on.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,"
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,PaintHolding,ThirdPartyStoragePartitioning,OptimizationHints",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; while it is there, nothing else in this thread may run an event loop."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "Chromium is needed, from the system's packages"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield launched
        launched.close()
