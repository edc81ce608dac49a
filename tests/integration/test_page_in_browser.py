"""The HTML page in a real Chromium: three widths, light and dark, printed; no error, no request, no sideways scroll."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anymps.findings import Story, find
from anymps.record import Recording
from anymps.report import compare, diff_document, rendered, report_pieces, upgrade_document
from anymps.upgrade import make_grid
from plans import evil, plan_page, planned, resting
from recordings import hostile, refusing, small, training
from report.test_report_numbers import predicted
from upgrade.test_upgrade import training as counting

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from anymps.plan import Plan

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

RECORDINGS = {
    "small": small,
    "training": lambda: training().close(),
    "refused": refusing,
    "hostile": hostile,
}

PLANS = {"plan": planned, "hostile plan": evil, "plan that fits": resting}


def diff_page(before: Recording, after: Recording) -> str:
    """The page of a comparison."""
    found = compare(Story.of(before), Story.of(after), find(before), find(after))
    return "".join(rendered(diff_document(found), "html"))


DIFFS = {
    "diff": lambda: diff_page(training().close(), small()),
    "hostile diff": lambda: diff_page(training(clean=True).close(), hostile()),
}

UPGRADES = {"upgrade": lambda: "".join(rendered(upgrade_document(make_grid(counting(faults=BUGS))), "html"))}
BUGS = ("MPS607 aten::linear", "elsewhere.MPS615@2.11 aten::mm")

# Contrast of all text by the formula of WCAG 2.1 (relative luminance), over the nearest background that is not clear.
# Colours may come in any notation, so a canvas of one pixel turns them into numbers.
CONTRAST = """
() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = (color) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
    const part = color[i] / 255;
    return sum + weight * (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  }, 0);
  const behind = (element) => {
    for (let it = element; it; it = it.parentElement) {
      const color = rgba(getComputedStyle(it).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const poor = [];
  let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    const element = walker.currentNode.parentElement;
    if (!text || element.closest("style, script, title, details:not([open]) > :not(summary)")) continue;
    const style = getComputedStyle(element);
    if (style.display === "none") continue;
    const svg = element.namespaceURI.endsWith("svg");
    const label = svg && element.classList.contains("label");
    const back = label ? rgba(getComputedStyle(element.previousElementSibling).fill) : behind(element);
    const [low, high] = [light(rgba(svg ? style.fill : style.color)), light(back)].sort((x, y) => x - y);
    const contrast = (high + 0.05) / (low + 0.05);
    seen += 1;
    if (contrast < 4.5) poor.push([text.slice(0, 40), contrast.toFixed(2)]);
  }
  return seen > 50 ? poor : "no text was looked at";
}
"""

NAMELESS = """
() => [...document.querySelectorAll("a, button, [role=img], [role=region], summary, table")].filter((it) => {
  const label = document.getElementById(it.getAttribute("aria-labelledby"));
  return !(it.getAttribute("aria-label") || label?.textContent.trim() || it.textContent.trim());
}).map((it) => it.outerHTML.slice(0, 80))
"""

CUT_OFF = """
() => [...document.querySelectorAll("text.label")].filter((it) => getComputedStyle(it).display !== "none")
  .filter((it) => it.getBoundingClientRect().right > it.previousElementSibling.getBoundingClientRect().right)
  .map((it) => it.textContent)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The Chromium of this machine, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # --no-sandbox: containers of CI run as root, where Chromium's sandbox refuses to start.
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


def opened(
    browser: Browser, file: Path, shown: Recording | Plan | str, *, unfolded: bool = True, **context: Any
) -> tuple[Page, list[str]]:
    """A page, of a recording or a plan, in the browser, and all that it complained about or asked the network for."""
    if isinstance(shown, Recording):
        shown = "".join(report_pieces("html", Story.of(shown), find(shown)))
    file.write_text(shown if isinstance(shown, str) else plan_page(shown), encoding="utf-8")
    page = browser.new_context(**context).new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: troubles.append(dialog.message))
    page.on("request", lambda request: None if request.url == file.as_uri() else troubles.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_load_state("networkidle")
    if unfolded and context.get("java_script_enabled", True):
        page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    return page, [trouble for trouble in troubles if not trouble.startswith("data:,")]


@pytest.mark.parametrize("name", [*RECORDINGS, *PLANS, *DIFFS, *UPGRADES])
def test_page(browser: Browser, tmp_path: Path, name: str) -> None:
    """On a phone, a tablet and a desk, by day and by night: readable, nothing wider than the screen, no complaint."""
    page, troubles = opened(browser, tmp_path / "page.html", {**RECORDINGS, **PLANS, **DIFFS, **UPGRADES}[name]())
    for width in (360, 820, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT_OFF) == []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(CONTRAST) == []
    assert troubles == []
    assert page.evaluate(NAMELESS) == []
    links = page.eval_on_selector_all("nav a", "them => them.map(it => it.getAttribute('href'))")
    assert [link for link in links if page.query_selector(link) is None] == []
    page.context.close()


WIDTHS = (400, 800, 1400)


def test_what_matters_is_on_the_screen(browser: Browser, tmp_path: Path) -> None:
    """The Mac's time, and what a wait costs, stand on the screen without scrolling."""
    page, _ = opened(browser, tmp_path / "page.html", predicted())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for table, head in (("step-table", "on the Mac"), ("waits-hurting", "cost a step")):
            edges = page.evaluate(f"""
                () => [...document.querySelectorAll("#{table} th")].filter((it) => it.textContent === "{head}").map(
                  (it) => [it.getBoundingClientRect().right, it.closest(".scroll").getBoundingClientRect().right])
            """)
            assert [right <= edge for right, edge in edges] == [True], edges
    page.context.close()


def test_no_place_breaks_in_a_name(browser: Browser, tmp_path: Path) -> None:
    """At any width the name of a file is on one line."""
    page, _ = opened(browser, tmp_path / "page.html", training().close())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        names = page.evaluate("""
            () => [...document.querySelectorAll("th.path")].map((it) => {
              const name = document.createRange();
              name.selectNodeContents(it.lastChild);
              return [it.textContent, name.getClientRects().length];
            })
        """)
        assert "nets/model.py:19" in dict(names)
        assert [name for name, lines in names if lines > 1] == []
    page.context.close()


def test_keyboard(browser: Browser, tmp_path: Path) -> None:
    """The first stop of the keyboard leads past the navigation, and a table is sorted by its column heads."""
    page, _ = opened(browser, tmp_path / "page.html", training().close())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"

    def names() -> list[str]:
        heads = page.locator("#operator-table tbody th").all_inner_texts()
        return [str(head) for head in heads]

    head = page.locator("#operator-table thead th").first
    by_count = names()
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert names() == sorted(by_count)
    assert head.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert names() == sorted(by_count, reverse=True)
    page.locator("#operator-table thead th").nth(2).locator("button").click()
    assert page.locator("#operator-table tbody tr").first.locator("td").nth(1).inner_text() == "2,000"
    page.context.close()


def test_a_link_opens_what_is_folded(browser: Browser, tmp_path: Path) -> None:
    """What is read second is folded until it is asked for, by its heading or by the list of sections."""
    page, _ = opened(browser, tmp_path / "page.html", training().close(), unfolded=False)
    assert page.locator("#findings article").first.is_visible()
    for anchor, table in (("waits", "#waits-hurting"), ("operators", "#operator-table")):
        assert page.locator(table).is_hidden()
        page.locator(f'nav a[href="#{anchor}"]').click()
        assert page.locator(table).is_visible()
    page.locator("#lines-title").click()
    assert page.locator("#lines").is_visible()
    page.context.close()


def test_without_scripts(browser: Browser, tmp_path: Path) -> None:
    """Without a script the page shows the same; only the sorting is gone."""
    page, troubles = opened(browser, tmp_path / "page.html", small(), java_script_enabled=False)
    assert troubles == []
    assert page.locator("h1").inner_text().endswith("Would run on M3 Pro 18GB, with 1 operator on the CPU.")
    assert page.locator("#operator-table button").count() == 0
    page.context.close()


def test_paper_is_wide_enough(browser: Browser, tmp_path: Path) -> None:
    """On paper long names wrap: what is wider than the sheet makes Chromium print all of it smaller."""
    builder = training()
    line = builder.site("/opt" + "/a_long_name_of_a_directory" * 9 + "/train.py", 7, "main", "x = y")
    builder.allocation(1 << 20, "aten::mm", site=line)
    page, _ = opened(browser, tmp_path / "page.html", builder.close(), viewport={"width": 718, "height": 1000})  # A4
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    page.context.close()


@pytest.mark.parametrize(
    ("make", "folded"), [(lambda: training().close(), "#step-table"), (planned, "#mac-table")], ids=["run", "plan"]
)
def test_print(browser: Browser, tmp_path: Path, make: Callable[[], Recording | Plan], folded: str) -> None:
    """On paper the page is light, has all of its tables, and no navigation; it becomes a PDF."""
    page, _ = opened(browser, tmp_path / "page.html", make(), color_scheme="dark", unfolded=False)
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(folded).is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(folded).is_hidden()
    assert page.evaluate(CONTRAST) == []
    assert page.pdf(format="A4").startswith(b"%PDF-")
    page.context.close()


def test_names_in_a_drawing_of_a_plan_do_not_touch(browser: Browser, tmp_path: Path) -> None:
    """At any width no two texts of one drawing overlap, and none leaves its figure."""
    page, _ = opened(browser, tmp_path / "page.html", planned())
    for width in (360, 800, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        overlaps = page.evaluate("""
            () => [...document.querySelectorAll(".drawing > svg")].flatMap((drawing) => {
              const frame = drawing.closest("figure").getBoundingClientRect();
              const texts = [...drawing.querySelectorAll("text")];
              const boxes = texts.map((it) => it.getBoundingClientRect());
              const outside = texts.filter((_, i) => boxes[i].left < frame.left || boxes[i].right > frame.right);
              const touching = texts.filter((_, i) => boxes.some((other, j) => j > i && boxes[i].left < other.right
                && other.left < boxes[i].right && boxes[i].top + 2 < other.bottom && other.top + 2 < boxes[i].bottom));
              return [...outside, ...touching].map((it) => it.textContent);
            })
        """)
        assert overlaps == []
    page.context.close()
