"""The site: it builds without a warning, and none of its pages asks another host for anything."""

from __future__ import annotations

import inspect
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import anymps
from integration.test_page_in_browser import CHROMIUM
from processes import PATIENCE

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


class Requests(HTMLParser):
    """Collects what a browser would load to show a page: everything but what is behind `<a>`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses of one element."""
        if tag != "a":
            self.found += [value for name, value in attrs if name in ("src", "srcset", "href", "data") and value]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(target / "doctrees")]
    ended = subprocess.run(
        [*command, str(ROOT / "docs"), str(target / "html")],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return target / "html"


def test_every_page_is_there(site: Path) -> None:
    """Each Markdown file under docs has its page, and the API page shows the docstrings."""
    sources = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert sources <= {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    first = inspect.getdoc(anymps.enable).partition("`")[0]
    assert f"<p>{first}<code" in (site / "api.html").read_text(encoding="utf-8")


def test_no_page_asks_another_host(site: Path) -> None:
    """Scripts, styles, images and fonts all lie in the site itself."""
    for page in site.rglob("*.html"):
        parser = Requests()
        parser.feed(page.read_text(encoding="utf-8"))
        assert [address for address in parser.found if "//" in address.partition("data:")[0]] == [], page
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert "url(http" not in text.replace('"', "").replace("'", ""), style
        assert "url(//" not in text.replace('"', "").replace("'", ""), style
        assert "@import" not in text or "://" not in text, style


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize(("page", "first"), [("settings", '"option of "'), ("known-bugs", '"2.7 "')])
def test_a_wide_table_is_a_list_of_cards_on_a_phone(site: Path, page: str, first: str) -> None:
    """At 400 px neither the page nor a table scrolls sideways, and each filled cell tells the name of its column."""
    with pytest.importorskip("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page(viewport={"width": 400, "height": 900})
        shown.goto((site / f"{page}.html").as_uri())
        beyond = "it => it.scrollWidth - it.parentElement.clientWidth"
        assert max(table.evaluate(beyond) for table in shown.query_selector_all("article table")) <= 0
        assert shown.evaluate("document.documentElement.scrollWidth") == 400
        assert shown.eval_on_selector("table.cards td + td", "it => getComputedStyle(it, '::before').content") == first
