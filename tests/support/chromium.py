"""The Chromium of this machine, as tests, benchmarks and the pictures of the docs drive it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

# The first is Chromium without the window around the page; see tests/system.py.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# The popups of the address bar are pages of their own in each window, as much work as the page under test. The others are Playwright's, for its own driver:
# Chromium reads only the last list of features.
OFF = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "OptimizationHints",
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join(OFF)}",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; while it is there, nothing else in this thread may run an event loop."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    assert found, "Chromium is needed, from the system's packages"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield launched
        launched.close()
