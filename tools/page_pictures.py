#!/usr/bin/env python3
"""Take the pictures of the web page for docs/images: serve the demo's store and use the page in Chromium.

    make demo && .venv/bin/python tools/page_pictures.py demo-output/demo.store docs/images

Needs `pip install playwright pillow` and Chromium on the path, or its path in CHROMIUM.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

TEXT = """La procuration est valable pour l’assemblée visée et à tout ajournement de cette assemblée.
Tout plaignant peut demander au tribunal de rendre les ordonnances visées au présent article.
Le chat dort sur le canapé du salon."""
WORD = "proxy"
LOW, HIGH, NARROW = ({"width": width, "height": height} for width, height in ((1180, 760), (1180, 1180), (360, 800)))
WAIT = 60_000  # milliseconds


def wait_until_ready(address: str) -> None:
    for _ in range(240):
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as reply:
                if reply.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.5)
    sys.exit("the server did not start")


def translated(browser: Any, address: str, **options: Any) -> Page:
    page: Page = browser.new_context(device_scale_factor=1, **options).new_page()
    page.set_default_timeout(WAIT)
    page.goto(address)
    expect(page.locator("#store")).to_be_enabled(timeout=WAIT)
    page.fill("#source", TEXT)
    page.click("#translate")
    expect(page.locator(".pair")).to_have_count(len(TEXT.splitlines()), timeout=WAIT)
    expect(page.locator("#result")).to_have_attribute("aria-busy", "false", timeout=WAIT)
    return page


def show_evidence(page: Page) -> None:
    page.locator(".side-memory .prose .word", has_text=re.compile(f"^{WORD}$")).first.click()
    expect(page.locator(".evidence").first).to_contain_text("memory", timeout=WAIT)
    page.wait_for_timeout(500)


def save(page: Page, path: Path, *, whole: bool = False) -> None:
    """Save a picture with 128 colours: a third of the bytes, and no difference to see."""
    content = page.screenshot(full_page=whole)
    Image.open(BytesIO(content)).convert("RGB").quantize(128).save(path, optimize=True)


def take(browser: Any, address: str, out: Path) -> None:
    page = translated(browser, address, viewport=LOW)
    save(page, out / "page-translate.png")
    page.click("#tab-methods")
    expect(page.locator("#methods-chart")).to_be_visible(timeout=WAIT)
    save(page, out / "page-methods.png", whole=True)
    page.click("#tab-memory")
    expect(page.locator("#memory")).to_contain_text("Not yet indexed", timeout=WAIT)
    save(page, out / "page-memory.png", whole=True)
    for name, scheme in (("page-evidence.png", "light"), ("page-dark.png", "dark")):
        page = translated(browser, address, viewport=HIGH, color_scheme=scheme)
        show_evidence(page)
        save(page, out / name)
    save(translated(browser, address, viewport=NARROW), out / "page-narrow.png", whole=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        store = shutil.copytree(args.store, Path(folder, args.store.stem))
        serve = [sys.executable, "-m", "nearmt", "serve", store, "--port", str(port), "--allow-edits-without-key"]
        server = subprocess.Popen([str(part) for part in serve])
        try:
            wait_until_ready(address)
            with sync_playwright() as runner:
                chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
                browser = runner.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                take(browser, address, args.out)
                browser.close()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
