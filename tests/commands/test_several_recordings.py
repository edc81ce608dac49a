"""`anymps join` and a report of several recordings: one of many, or one line that says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps.commands import main
from anymps.record import Recording, RecordingBuilder, RecordingWriter

META: dict[str, object] = {
    "torch_version": "2.13.0", "mac": "M1 8GB", "mac_details": "Apple M1: 8 GB", "virtual": True, "source": "native",
}  # fmt: skip


def shard(path: Path, line: int = 3, **meta: object) -> Path:
    """A recording of two calls on one line."""
    builder = RecordingBuilder(RecordingWriter(path, {**META, **meta}))
    site = builder.site("test_it.py", line, "f", "x + 1")
    for start in (10, 20):
        builder.entry("aten::add", start_ns=start, duration_ns=5, site=site)
    builder.close()
    return path


def test_one_of_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Calls add up, and each file is a process of the whole; joined once more each keeps its own."""
    a, b = shard(tmp_path / "a.anymps"), shard(tmp_path / "b.anymps", line=4)
    out, again = tmp_path / "all.anymps", tmp_path / "again.anymps"
    assert main(["join", str(a), str(b), "-o", str(out)]) == 0
    assert capsys.readouterr().err == f"anymps: {out} holds 2 recordings, 4 calls\n"
    with Recording.open(out) as whole:
        assert [part.name for part in whole.parts] == ["a", "b"]
        assert [(line.line, line.on_mps) for line in whole.lines()] == [(3, 2), (4, 2)]
    assert main(["join", str(out), str(shard(tmp_path / "c.anymps")), "-o", str(again)]) == 0
    with Recording.open(again) as whole:
        assert [part.name for part in whole.parts] == ["all, a", "all, b", "c"]
        assert [(line.line, line.on_mps) for line in whole.lines()] == [(3, 4), (4, 2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.anymps", "again.anymps", "all.anymps", "b.anymps", "c.anymps",
    ]  # fmt: skip


def test_a_report_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is that of the joined recording, and no file is written."""
    a, b = shard(tmp_path / "a.anymps"), shard(tmp_path / "b.anymps", line=4)
    assert main(["report", "-v", str(a), str(b)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 calls" in said
    assert "Joined from 2 processes (a, b), which are shown one after another" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.anymps", "b.anymps"]


def test_shards_of_a_suite(tmp_path: Path) -> None:
    """The numbers of tests add up, and what a shard expects is expected of the whole, once."""
    row = {"file": "test_it.py", "line": 3, "why": "a mark"}
    a = shard(tmp_path / "a", suite={"tests": 3, "failed": 1, "excused": 1, "expected": [row]}, ending={"status": 1})
    b = shard(tmp_path / "b", suite={"tests": 2, "failed": 0, "excused": 1, "expected": [row]}, ending={"status": 0})
    assert main(["join", str(a), str(b), "-o", str(tmp_path / "all")]) == 0
    with Recording.open(tmp_path / "all") as whole:
        assert whole.meta["suite"] == {"tests": 5, "failed": 1, "excused": 2, "expected": [row]}
        assert whole.meta["ending"] == {"status": 1}


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"torch_version": "2.15.0"}, "their torch differs, 2.13.0 and 2.15.0"),
        ({"mac_details": "Apple M2: 8 GB"}, "their Mac differs, Apple M1 and Apple M2"),
    ],
)
def test_what_cannot_be_joined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], meta: dict[str, object], said: str
) -> None:
    """Another release or another Mac: one line, and nothing is written."""
    a, b = shard(tmp_path / "a"), shard(tmp_path / "b", **meta)
    assert main(["join", str(a), str(b), "-o", str(tmp_path / "all")]) == 2
    assert capsys.readouterr().err == f"anymps: a and b cannot be joined: {said}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is cut short, one that is named twice, and one that is the output: one line each, nothing is lost."""
    a, b, out = shard(tmp_path / "a"), shard(tmp_path / "b"), shard(tmp_path / "out", line=9)
    b.write_bytes(b.read_bytes()[:5000])
    before = a.read_bytes(), out.read_bytes()
    for words in ([a, b, "-o", out], [a, a, "-o", out], [a, out, "-o", out]):
        assert main(["join", *map(str, words)]) == 2
    damaged, twice, itself = capsys.readouterr().err.splitlines()
    assert damaged.startswith(f"anymps: {b} is damaged (")
    assert twice == f"anymps: {a} is named twice: each recording counts once"
    assert itself == f"anymps: --output {out} is one of the recordings to join: name another file"
    assert (a.read_bytes(), out.read_bytes()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "out"]
