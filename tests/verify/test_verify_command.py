"""`anymps verify` on the command line: what it writes and says, and its exit codes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from anymps.commands import _verify, main
from anymps.verify import KINDS, Answers, ask, read_answers, write_answers
from processes import SOURCE_ROOT

from .answering import answers

TORCH = torch.__version__
WAITS, WAITS_NOT = ({"does": "computes", "value": words} for words in ("waits", "does not wait"))


def some(virtual: bool, **changes: Any) -> Answers:
    """A few answers of the installed torch."""
    found = answers(virtual, waits={"item": WAITS, "clone": WAITS_NOT, **changes})
    found.machine["torch"] = TORCH
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the device would be asked; it answers `some`."""
    calls: list[dict[str, Any]] = []

    def ask(kinds: Sequence[str], minutes: float, **more: Any) -> Answers:
        calls.append({"kinds": kinds, "minutes": minutes, "mac": more.get("mac"), "wanted": more.get("wanted")})
        more["tell"](KINDS["waits"])
        if "keep" in more:
            more["keep"](some(True))
        return some(True)

    monkeypatch.setattr(_verify, "ask", ask)
    return calls


def test_a_virtual_device_says_whose_answers_they_are(
    asked: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its first line; the file is written and nobody is asked to send it in."""
    path = tmp_path / "x.json.gz"
    assert main(["verify", "--out", str(path), "--only", "waits", "--minutes", "3", "--mac", "M3 Pro 18GB"]) == 0
    out, err = capsys.readouterr()
    assert out == (
        "These are anymps's own answers, from its virtual device: "
        f"Apple M3 Pro (18-core GPU), 18 GB, macOS 26.4, torch {TORCH}\n"
        "               cases  answers\n"
        "waits              2        2\n"
        f"Saved 2 answers in {path}.\n"
    )
    assert err == "anymps: waits (calls that make the host wait)\n"
    assert read_answers(path) == some(True)
    assert asked == [{"kinds": ("waits",), "minutes": 3.0, "mac": "M3 Pro 18GB", "wanted": None}]


def test_a_mac_is_asked_to_send_it_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default all kinds, 18 minutes, and a file in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_verify, "ask", lambda kinds, minutes, **more: some(False))
    assert main(["verify"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("This Mac: Apple M3 Pro")
    assert out.endswith("Saved 2 answers in mac-answers.json.gz. Please attach the file to an issue in the project.\n")
    assert (tmp_path / "mac-answers.json.gz").exists()


def test_read_agrees(asked: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0; the virtual device acts as that Mac and is asked the cases of the file alone."""
    path = tmp_path / "x.json.gz"
    write_answers(some(False), path)
    assert main(["verify", "--read", str(path)]) == 0
    assert capsys.readouterr().out == (
        f"A Mac's answers, 2026-11-24: Apple M3 Pro (18-core GPU), 18 GB, macOS 26.4, torch {TORCH}\n"
        "              compared   agree  bit for bit  differ  not asked\n"
        "waits                2       2            2       0          0\n"
        "They agree everywhere.\n"
    )
    (call,) = asked
    assert call["mac"] == "M3 Pro 18-core 18GB, macOS 26.4"
    assert call["wanted"] == {"waits": ["item", "clone"]}


def test_read_differs(asked: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and both answers."""
    path = tmp_path / "x.json.gz"
    write_answers(some(True, clone=WAITS), path)
    assert main(["verify", "--read", str(path), "--only", "waits"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("Anymps's own answers, 2026-11-24: ")
    assert out.endswith("1 difference:\n\nwaits: clone: value\n  the Mac  waits\n  anymps   does not wait\n")


def test_read_on_the_kernels_of_a_release(
    asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whose numbers are compared is said."""
    path = tmp_path / "x.json.gz"
    write_answers(some(False), path)
    sentences = []
    for kernels in ("2.15", "cpu"):
        monkeypatch.setenv("ANYMPS_KERNELS", kernels)
        assert main(["verify", "--read", str(path)]) == 0
        sentences.append(capsys.readouterr().out.splitlines()[1])
    assert sentences[0] == "PyTorch's own kernels answer on the virtual device: ANYMPS_KERNELS=2.15."
    assert sentences[1].split() == ["compared", "agree", "bit", "for", "bit", "differ", "not", "asked"]


def test_a_mac_that_is_not_known(
    asked: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default is played, and that is said; its name reaches the terminal without control characters."""
    path = tmp_path / "x.json.gz"
    strange = some(False)
    strange.machine["chip"] = "Apple \x1b[31mM99"
    write_answers(strange, path)
    assert main(["verify", "--read", str(path)]) == 0
    out = capsys.readouterr().out
    assert "Apple \\x1b[31mM99 (18-core GPU)" in out
    assert "anymps does not know this Mac, so the virtual device acts as its default one.\n" in out
    assert asked[0]["mac"] is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--verbose"], "--verbose needs --read"),
        (["--out", "nowhere/x"], "nowhere/x cannot be written: there is no directory {here}/nowhere"),
        (["--out", "."], ". cannot be written: it is a directory (name a file in it)"),
        (["--read", "x", "--out", "y"], "--read compares with the file's Mac, so it takes neither --out nor --mac"),
        (["--read", "x"], "x cannot be read: No such file or directory"),
    ],
)
def test_mistakes(
    words: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line and exit code 2, before anything is asked."""
    monkeypatch.chdir(tmp_path)
    if words[:1] == ["--read"] and len(words) > 2:
        write_answers(some(False), tmp_path / "x")
    assert main(["verify", *words]) == 2
    assert capsys.readouterr().err == f"anymps: {problem.format(here=tmp_path)}\n"


def test_another_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of another release of torch is not compared: it says which one it needs."""
    path = tmp_path / "x.json.gz"
    other = some(False)
    other.machine["torch"] = "2.10.1"
    write_answers(other, path)
    assert main(["verify", "--read", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"anymps: the file is from torch 2.10.1, but this is {TORCH}: read it with torch 2.10\n"
    )
    other.machine["torch"] = "new"
    write_answers(other, path)
    assert main(["verify", "--read", str(path)]) == 2
    assert capsys.readouterr().err == "anymps: the file does not name a release of torch\n"


FEW = {
    "memory": ["fraction 3"],
    "streams": ["call randperm"],
    "waits": ["item", "clone"],
    "operators": ["forward nn.functional.silu float32"],
    "fallbacks": ["fallback special.airy_ai float32"],
    "faults": ["MPS602"],
}
"""Cases of each kind: as many as take no time to speak of."""


@pytest.mark.slow
def test_a_whole_run_and_a_planted_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cases of all kinds in real processes, from another folder; read, it agrees; one answer changed, not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_verify, "ask", functools.partial(ask, wanted=FEW))
    (tmp_path / "json.py").write_text("raise SystemExit('a file of the user')")
    path = tmp_path / "x.json.gz"
    assert main(["verify", "--out", str(path), "--minutes", "1000", "--mac", "M3 Pro 18GB"]) == 0
    found = read_answers(path)
    assert found.virtual
    assert {kind: sorted(cases) for kind, cases in found.answers.items()} == {k: sorted(v) for k, v in FEW.items()}
    assert {kind: about["note"] for kind, about in found.kinds.items()} == dict.fromkeys(FEW, "")
    text = str(found.document())
    assert str(Path.home()) not in text
    assert str(SOURCE_ROOT) not in text
    capsys.readouterr()
    monkeypatch.setattr(_verify, "ask", ask)
    found.answers = {kind: found.answers[kind] for kind in ("faults", "waits")}
    write_answers(found, path)
    assert main(["verify", "--read", str(path), "--minutes", "1000"]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out.endswith("They agree everywhere.\n")
    found.answers["waits"]["item"]["value"] = "does not wait"
    write_answers(found, path)
    assert main(["verify", "--read", str(path), "--only", "waits", "--minutes", "1000"]) == 1
    assert "waits: item: value\n  the Mac  does not wait\n  anymps   waits\n" in capsys.readouterr().out
