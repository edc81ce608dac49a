"""The pages: links and anchors lead somewhere, and the commands in them are commands."""

from __future__ import annotations

import ast
import html
import re
import runpy
import shlex
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import anymps
from anymps._settings import FORMATS, row_of
from anymps.commands import _MODULES, _commands
from anymps.mac import parse_mac
from anymps.pytest_plugin._options import OPTIONS
from anymps.rules import SUPPORTED

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "docs", "docs/architecture", "docs/commands", "docs/recipes", "docs/rules", "examples", "tests/data")
"""Where the pages lie; a test for each folder, as there are hundreds of pages."""
ARCHITECTURE = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "architecture").glob("*.md"))
SHELLS = ("console", "bash", "sh", "")


@cache
def tokens(page: Path) -> tuple[Token, ...]:
    """What the page consists of; what stands inside of lines follows its line."""
    found = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    return tuple(token for outer in found for token in (outer, *(outer.children or ())))


def anchor(heading: str) -> str:
    """The anchor that GitHub and the site give a heading."""
    kept = (c for c in heading.lower() if c in " -_" or unicodedata.category(c)[0] in "LN")
    return "".join(kept).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """All that a link may name after `#`."""
    found: list[str] = []
    for token, following in zip(tokens(page), tokens(page)[1:], strict=False):
        if token.type == "heading_open":
            texts = (part.content for part in following.children or () if part.type in ("text", "code_inline"))
            name = anchor("".join(texts))
            again = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in found)
            found.append(f"{name}-{again}" if again else name)
    return frozenset(found)


def broken_links(page: Path) -> Iterator[str]:
    """The links of a page that lead nowhere in the checkout; those to other hosts are not asked."""
    for token in tokens(page):
        target = token.attrs.get("href") or token.attrs.get("src")
        if target is None or re.match(r"[a-z]+:", str(target)):
            continue
        name, _, place = str(target).partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (place and place not in anchors(path)):
            yield str(target)


def command_lines(page: Path) -> Iterator[list[str]]:
    """The commands in the blocks of a page, in words; comments are left out."""
    for token in tokens(page):
        if token.type == "fence" and token.info.strip() in SHELLS:
            for line in token.content.replace("\\\n", "").splitlines():
                if re.match(r"(anymps|pytest|make) ", line):
                    yield shlex.split(line, comments=True)


def mistakes(words: list[str]) -> Iterator[str]:
    """What `anymps`, pytest or make would say against a command; nothing is run."""
    tool, *arguments = words
    if tool == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        yield from (word for word in arguments if "=" not in word and word not in targets and word[0] != "-")
        return
    if tool == "pytest":
        known = {declared.flag for declared in OPTIONS}
        yield from (word for word in arguments if word.startswith("--mps") and word.partition("=")[0] not in known)
    else:
        command = _commands.get_command(click.Context(_commands), arguments[0])
        if command is None:
            yield f"no command {arguments[0]}"
            return
        try:
            context = command.make_context(arguments[0], arguments[1:])
        except click.ClickException as error:
            yield error.format_message()
            return
        arguments = ["--mac", context.params["mac"]] if context.params.get("mac") else []
    for option, value in pairwise(arguments):
        if option in ("--mac", "--mps-mac"):
            parse_mac(value)


@cache
def pages(folder: str) -> dict[str, Path]:
    """The pages of a folder, by their names."""
    found = {path.name: path for path in sorted((ROOT / folder).glob("*.md"))}
    assert found
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_links_lead_somewhere(folder: str) -> None:
    """Each relative link of a page is a file of the checkout, and its anchor a heading there."""
    assert [(name, link) for name, page in pages(folder).items() for link in broken_links(page)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_commands_are_commands(folder: str) -> None:
    """Each line that begins with anymps, pytest or make has a command, options and a Mac that exist."""
    lines = [(name, words) for name, page in pages(folder).items() for words in command_lines(page)]
    assert [(name, words, text) for name, words in lines for text in mistakes(words)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_commands_in_sentences_exist(folder: str) -> None:
    """Where a sentence or a table names `anymps WORD`, that is a command."""
    for name, page in pages(folder).items():
        named = [token.content.split() for token in tokens(page) if token.type == "code_inline"]
        words = {words[1] for words in named if len(words) > 1 and words[0] == "anymps"}
        assert {word for word in words if word[0] not in "-["} <= set(_MODULES), name


def test_what_is_to_be_installed_can_be_had() -> None:
    """No page, message or workflow asks an index for anymps; libraries have the versions that pyproject.toml names."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needed = {
        re.split(r"[<>=]", requirement)[0]: requirement for requirement in re.findall(r'"([\w-]+[<>=][^";]*)"', project)
    }
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml", *(ROOT / "docs").rglob("*.md")]
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.*")]
    asked = []
    for path in (*pages, *sources, *(ROOT / ".github").rglob("*.yml")):
        if path.suffix in (".py", ".md", ".yml", ".toml") and path != Path(__file__):
            for words in re.findall(r"pip install ([^`#)]*)", path.read_text(encoding="utf-8")):
                parts = re.findall(r"[^\s'\"]+", words.partition("\n")[0])
                asked += [(path.name, part) for part in parts if re.fullmatch(r"[a-z][\w-]*(\[.*|[<>=].*)?", part)]
            assert "pipx run anymps" not in path.read_text(encoding="utf-8"), path
    assert [pair for pair in asked if pair[1].startswith("anymps")] == []
    pinned = [
        (page, requirement)
        for page, requirement in asked
        if re.search("[<>=]", requirement) and not requirement.startswith("torch")
    ]
    assert {requirement for _, requirement in pinned} == {
        needed[name] for name in ("llvmlite", "nbclient", "ipykernel")
    }


def test_no_page_leaves_the_address_to_fill_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages read the repository's address from a variable; docs/conf.py puts it there once it is known."""
    files = [ROOT / "README.md", ROOT / "action.yml", ROOT / ".pre-commit-hooks.yaml", *(ROOT / "docs").rglob("*.md")]
    files += (ROOT / ".github").rglob("*.yml")
    named = [path.name for path in files if re.search(r"\bOWNER\b|URL of anymps", path.read_text(encoding="utf-8"))]
    assert named == []
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    put = conf["_put_the_address"]
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    monkeypatch.setitem(put.__globals__, "repository", "someone/anymps")
    shown = [page]
    put(None, "ci", shown)
    assert "git+https://github.com/someone/anymps@v0" in shown[0]
    assert 'repository: "someone/anymps"' in shown[0]
    assert [word for word in ("vars.ANYMPS", "unknown address", "fork") if word in shown[0]] == []


def test_the_front_page_is_one_screen() -> None:
    """Before its first section, README has at most 25 lines that are not empty, and the share that fidelity.md has."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len([line for line in text.partition("\n## ")[0].splitlines() if line]) <= 25
    table = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8").partition("\n| forward results |")[2]
    shares = re.findall(r": ([\d.]+) %", table.partition("\n")[0])
    assert f"On {min(shares)} to {max(shares)} % of the pairs" in text


def test_every_command_is_on_the_page_of_commands() -> None:
    """docs/commands.md links to the pages of all commands."""
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [name for name in _MODULES if f"(commands/{name}.md)" not in text] == []


def test_the_page_of_the_api_has_every_public_name() -> None:
    """docs/api.md lists what `anymps` exports."""
    listed = re.findall(r"^\.\. auto\w+:: anymps\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set(anymps.__all__) - {"__version__"})


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", *ARCHITECTURE])
def test_files_that_are_named_exist(page: str) -> None:
    """A file that a page about the source names, with a folder or without, is there."""
    folders = ("src", "tests", "docs", "benchmarks")
    files = [path.as_posix() for folder in folders for path in (ROOT / folder).rglob("*.*")]
    for name in re.findall(r"`([\w./*<>-]*\w\.(?:py|cpp|h|txt|j2))`", (ROOT / page).read_text(encoding="utf-8")):
        pattern = re.sub(r"\\\*|<\w+>", r"[\\w-]*", re.escape(name))
        assert any(re.search(rf"/{pattern}$", file) for file in files), f"{page} names {name}, which does not exist"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", *ARCHITECTURE])
def test_folders_and_names_of_code_exist(page: str) -> None:
    """A folder that a page about the source names is there; a name with an underscore is in code or is a file."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", text)
    folders, names = _in_the_source()
    stale = [span for span in spans if re.fullmatch(r"[a-z_./-]+/", span) and f"/{span}" not in folders]
    words = {word for span in spans for word in re.findall(r"\w*[a-z0-9]_[a-z]\w*", span)}
    assert (stale, sorted(words - names)) == ([], [])


@cache
def _in_the_source() -> tuple[str, frozenset[str]]:
    """The folders of the checkout, each as `/its/path/`, and all words of the code, of its files' names too."""
    top = [ROOT / name for name in ("src", "tests", "docs", "benchmarks", "examples", ".github")]
    paths = [path for folder in top for path in (folder, *folder.rglob("*")) if "__pycache__" not in path.parts]
    folders = " ".join(f"/{path.relative_to(ROOT).as_posix()}/" for path in paths if path.is_dir())
    kinds = (".py", ".cpp", ".h", ".j2", ".yml", ".sh", ".json")
    texts = [path.read_text(encoding="utf-8") for path in paths if path.suffix in kinds]
    texts += [(ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", "pyproject.toml")]
    names = {word for text in texts for word in re.findall(r"\w+_\w+", text)}
    return folders, frozenset(names | {word for path in paths for word in re.findall(r"\w+", path.stem)})


def test_every_substrate_is_on_the_page() -> None:
    """The page about the way of a call names each substrate that a user can choose, and that of plans."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"A \*substrate\* computes.*", page)
    assert re.findall(r"`(\w+)`", sentence) == [*row_of("substrate").words, "shape"]


@pytest.mark.parametrize("drawing", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.stem)
def test_words_fit_into_their_boxes(drawing: Path) -> None:
    """No word is wider than its box, if a letter takes half of its size, and a bold one two thirds."""
    text = drawing.read_text(encoding="utf-8")
    styles = {match[1]: match[2] for match in re.finditer(r"\.(\w)\{([^}]*)\}", text)}
    boxes = [
        tuple(map(float, match.groups()))
        for match in re.finditer(r'x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)" rx', text)
    ]
    wide = []
    for style, x, y, words in re.findall(r'<text class="(\w)" x="(\S+)" y="(\S+)">([^<]*)<', text):
        size = re.search(r"font-size:([\d.]+)px", styles[style])
        assert size is not None
        width = (
            len(html.unescape(words))
            * float(size[1])
            * (0.66 if "bold" in styles[style] or "600" in styles[style] else 0.5)
        )
        for left, top, across, down in boxes:
            if left < float(x) < left + across and top < float(y) < top + down and width > across:
                wide.append(words)
    assert boxes
    assert wide == []


@pytest.mark.parametrize("page", ["settings.md", "architecture/report.md"])
def test_every_form_of_a_report_is_listed(page: str) -> None:
    """In the table of forms for users, and where the house is described."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert [form for form in FORMATS if f"`{form}`" not in text] == []


@pytest.mark.parametrize("page", ["README.md", "docs/quick-start.md", "docs/ci.md", "docs/limits.md"])
def test_the_supported_releases_are_named(page: str) -> None:
    """A page that names the range names the one that the rules have."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"\b2\.\d+ to 2\.\d+\b", text)) == {SUPPORTED}


def test_a_broken_page_is_found(tmp_path: Path) -> None:
    """The checks see a missing file, a missing heading, a wrong option and a Mac that was never sold."""
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`, three\n\n# One\n\n# One\n\n[a](gone.md) [b](#one-two-three) [c](#one-1) [d](#four)\n"
        "```console\nanymps fly x.py\nanymps run --unheard-of x.py\npytest --mps-mac 'M1 8GB' --mps-no\nmake tea\n```\n"
        "```console\nanymps run --mac 'M1 3GB' x.py\n```\n"
    )
    assert list(broken_links(page)) == ["gone.md", "#four"]
    *lines, last = command_lines(page)
    assert [text for words in lines for text in mistakes(words)] == [
        "no command fly",
        "No such option '--unheard-of'.",
        "--mps-no",
        "tea",
    ]
    with pytest.raises(ValueError, match="M1"):
        list(mistakes(last))


def _messages() -> list[str]:
    """All texts in the sources, with `...` for the parts that vary."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
                found.append("".join(map(str, parts)))
    return found


def test_troubleshooting_quotes_messages() -> None:
    """Each message in the page's tables is one that the sources hold."""
    texts = _messages()
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(quoted) >= 10
    for message in quoted:
        pattern = re.compile(".*?".join(map(re.escape, message.split("..."))), re.DOTALL)
        assert any(pattern.search(text) for text in texts), message
