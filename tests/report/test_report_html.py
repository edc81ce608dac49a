"""The HTML page: nothing in a script is interpreted, nothing is fetched, sources are quoted from the recording."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from anymps.findings import Story, find
from anymps.record import Fate, Flag, Phase, Recording, RecordingBuilder, RefusalKind, Wait
from anymps.report import report_pieces
from recordings import small
from report.test_report_numbers import predicted

EVIL = "\"'><script>alert(1)</script></style><img src=x onerror=alert(1)>\u202e\n</title>"
SHOWN = r"\"'><script>alert(1)</script></style><img src=x onerror=alert(1)>\u202e\n</title>".replace('\\"', '"')


class Page(HTMLParser):
    """The elements of a page, their attributes, and the text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.blocks: dict[str, str] = {}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("style", "script") else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.blocks[self._inside] = self.blocks.get(self._inside, "") + data
        else:
            self.words.append(data)
            self.told.append((self.tags[-1][0] if self.tags else "", data))

    @property
    def text(self) -> str:
        return "".join(self.words)

    def values(self, attribute: str) -> list[str]:
        return [str(attrs[attribute]) for _, attrs in self.tags if attribute in attrs]

    @property
    def drawings(self) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.tags if tag == "svg" and attrs.get("role") == "img"]

    def check_harmless(self, other: Page, *more: str) -> None:
        """Nothing of a hostile script is an element or attribute: there are no others than on the `other` page."""
        assert {tag for tag, _ in self.tags} <= {tag for tag, _ in other.tags} | set(more)
        assert [tag for tag, _ in self.tags].count("script") == 1
        assert not any(name.startswith("on") for _, attrs in self.tags for name in attrs)
        assert "\u202e" not in self.text
        assert self.blocks == other.blocks

    def check_landmarks(self) -> None:
        """Landmarks, one first heading, heads with a scope, ids that are there once, links within the page alone."""
        tags = [tag for tag, _ in self.tags]
        assert [tags.count(tag) for tag in ("header", "nav", "main", "footer", "h1")] == [1, 1, 1, 1, 1]
        assert all(attrs.get("scope") in ("col", "row") for tag, attrs in self.tags if tag == "th")
        identities = self.values("id")
        assert len(set(identities)) == len(identities)
        links = {value[1:] for value in self.values("href") if value.startswith("#")}
        assert links | set(self.values("aria-labelledby")) <= set(identities)
        assert all(value.startswith(("#", "data:")) for name in ("href", "src") for value in self.values(name))
        assert self.values("style") == []
        assert all(attrs["aria-label"] for attrs in self.drawings)


def page(recording: Recording) -> Page:
    """The page of a recording with its own findings."""
    return Page("".join(report_pieces("html", Story.of(recording), find(recording))))


def evil(**known: object) -> Recording:
    """A recording in which every text but the `known` ones is an attempt on the page."""
    names = ("script", "mac", "mac_details", "torch_version", "platform", "started", "directory")
    meta: dict[str, object] = {**dict.fromkeys(names, EVIL), **known}
    builder = RecordingBuilder(meta={**meta, "arguments": [EVIL], "environment": {EVIL: EVIL}, "virtual": True})
    site = builder.site(EVIL, 3, EVIL, EVIL, EVIL)
    module = builder.module(EVIL, EVIL)
    for step in range(4):
        builder.entry(
            EVIL, start_ns=step * 1000, duration_ns=500, fate=Fate.FALLBACK, phase=Phase.FORWARD, site=site,
            module=module, wait=Wait.FALLBACK,
        )  # fmt: skip
        for number in range(20):
            builder.entry(
                "aten::relu", start_ns=step * 1000 + 500 + number, duration_ns=1, fate=Fate.NATIVE,
                inputs=("float32[9]",), outputs=("float32[9]",),
            )  # fmt: skip
        builder.end_step(step * 1000 + 1000)
    builder.refusal(
        RefusalKind.DEVICE, EVIL, EVIL, operator=EVIL, start_ns=4000, site=site, origin=site,
        detail={"name": EVIL, "expression": EVIL},
    )  # fmt: skip
    return builder.close()


def test_nothing_from_the_script_is_markup() -> None:
    """Paths, names, source, operators and messages are shown as they are and make no element or attribute."""
    shown, harmless = page(evil()), page(predicted())
    shown.check_harmless(harmless)
    assert shown.text.count(SHOWN) > 20
    timed = page(evil(mac="M3 Pro 18GB", mac_details="", torch_version="2.13.0"))
    timed.check_harmless(harmless)
    assert SHOWN in "".join(text for tag, text in timed.told if tag == "title")


def test_policy_allows_the_own_style_and_script_alone() -> None:
    """The page's policy names the hashes of its style and script, and no element asks for anything else."""
    shown = page(small())
    (policy,) = (attrs["content"] for tag, attrs in shown.tags if "http-equiv" in attrs)
    hashes = {
        block: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for block, text in shown.blocks.items()
    }
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"url\((?!#)|@import|https?:", shown.blocks["style"] + shown.blocks["script"])


@pytest.mark.parametrize(("make", "drawings"), [(small, 1), (predicted, 2)])
def test_landmarks_and_heads(make: Callable[[], Recording], drawings: int) -> None:
    """Each row of a table has one head."""
    shown = page(make())
    shown.check_landmarks()
    tags = [tag for tag, _ in shown.tags]
    rows = "".join({"tr": "/", "th": "h", "td": "d"}.get(tag, "") for tag in tags).split("/")[1:]
    assert {row.count("h") for row in rows if "d" in row} == {1}
    assert len(shown.drawings) == drawings


def quoted(text: str, recorded: str, line: int = 3) -> list[str]:
    """The numbers and texts of the quoted lines."""
    builder = RecordingBuilder(meta={"directory": "/p"})
    site = builder.site("/p/train.py", line, "main", recorded, text=text)
    builder.refusal(RefusalKind.DTYPE, "TypeError", "no", operator="aten::mm", start_ns=0, site=site)
    recording = builder.close()
    report = "".join(report_pieces("html", Story.of(recording), find(recording)))
    block = re.search(r"<pre[^>]*>(.*?)</pre>", report, re.DOTALL)
    rows = re.findall(r'class="no">(.*?)</span><code>(.*?)</code>', block[1]) if block is not None else []
    return [f"{number}: {text}" for number, text in rows]


SOURCE = "a = 1\nb = 2\n\tc = a @ b\nd = 4\n"


@pytest.mark.parametrize(
    ("text", "recorded", "line", "expected"),
    [
        (SOURCE, "c = a @ b", 3, ["1: a = 1", "2: b = 2", "▸ 3:     c = a @ b", "4: d = 4"]),
        (SOURCE, "d = 4", 3, ["▸ 3: d = 4"]),
        ("", "c = a @ b", 3, ["▸ 3: c = a @ b"]),
        (SOURCE, "", 3, []),
    ],
)
def test_source_is_quoted_from_the_recording(text: str, recorded: str, line: int, expected: list[str]) -> None:
    """Lines around a finding are those that were recorded with it; without them its own stands alone."""
    assert quoted(text, recorded, line) == expected


def test_page_of_a_large_recording_has_an_end() -> None:
    """Operators and lines beyond what a page can show are summed up."""
    builder = RecordingBuilder(meta={"directory": "/p"})
    for number in range(400):
        site = builder.site("/p/train.py", number + 1, "main", f"line_{number}()")
        builder.entry(f"aten::op{number}", start_ns=number, duration_ns=1, site=site, flags=Flag.VIEW)
    site = builder.site("/p/train.py", 1, "main", "x" * 100_000)
    builder.refusal(RefusalKind.DTYPE, "TypeError", "m" * 1_000_000, operator="aten::mm", start_ns=0, site=site)
    text = page(builder.close()).text
    assert len(text) < 200_000
    assert "101 more operators with 101 calls." in text
    assert "100 more lines, each with fewer calls." in text
