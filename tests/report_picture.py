"""`python -m tests.report_picture` runs the quick start's script, and shows that run in README and its picture.

Its times are this machine's: run it on a quiet one. The short report of the run lies beside the picture, so that a test
can hold README to it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "report.png"
REPORT = PICTURE.with_suffix(".txt")
PAGES = (ROOT / "README.md", ROOT / "docs" / "quick-start.md")
_SIZE = {"width": 1000, "height": 1120}
_REPORT = re.compile(r"(?<=```text\n)Would run on .*?(?=```)", re.DOTALL)


def shown(page: Path) -> str:
    """The short report that a page shows."""
    found = _REPORT.search(page.read_text(encoding="utf-8"))
    assert found is not None, page
    return found[0]


def run(folder: Path) -> tuple[str, Path]:
    """The short report of the quick start's script, and the page of the same run."""
    script = re.search(r"```python\n(.*?)```", PAGES[1].read_text(encoding="utf-8"), re.DOTALL)
    assert script is not None
    (folder / "train.py").write_text(script[1], encoding="utf-8")

    def anymps(*words: str) -> str:
        command = [sys.executable, "-m", "anymps", *words]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stderr

    told = anymps("run", "--mac", "M1 8GB", "--record", "before.anymps", "train.py")
    anymps("report", "--format", "html", "--output", "page.html", "before.anymps")
    return told[told.index("Would run on ") :], folder / "page.html"


def drawn(page: Path) -> bytes:
    """The top of the page, as Chromium shows it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": _SIZE["width"], "height": _SIZE["height"]})
        opened.goto(page.as_uri())
        picture = opened.screenshot()
        browser.close()
    return picture


def main() -> None:
    """Run, draw, and write the picture and the text beside it."""
    with tempfile.TemporaryDirectory() as folder:
        report, page = run(Path(folder))
        PICTURE.write_bytes(drawn(page))
    REPORT.write_text(report, encoding="utf-8")
    for file in PAGES:
        file.write_text(_REPORT.sub(lambda _: report, file.read_text(encoding="utf-8"), count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
