"""A report of several recordings: one of many, or one line that says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps.commands import main
from anymps.record import Recording, RecordingBuilder, RecordingWriter, join_into

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


def test_a_report_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file is a process of the whole, of one that was joined before each of its own; no file is written."""
    a, b, c = (shard(tmp_path / f"{name}.anymps", line) for line, name in enumerate("abc", 3))
    with Recording.open(a) as first, Recording.open(b) as second:
        join_into([("a", first), ("b", second)], tmp_path / "all.anymps").close()
    before = sorted(path.name for path in tmp_path.iterdir())
    for files, names in (
        ((a, b), "2 processes (a, b)"),
        ((tmp_path / "all.anymps", c), "3 processes (all, a, all, b, c)"),
    ):
        assert main(["report", "-v", *map(str, files)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert f"Joined from {names}, which are shown one after another" in said
    assert "6 calls" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == before


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
    """Another release or another Mac: one line."""
    a, b = shard(tmp_path / "a"), shard(tmp_path / "b", **meta)
    assert main(["report", str(a), str(b)]) == 2
    assert capsys.readouterr().err == f"anymps: a and b cannot be joined: {said}\n"


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is cut short, one that is named twice, and one that the report would replace: one line each."""
    a, b = shard(tmp_path / "a"), shard(tmp_path / "b")
    b.write_bytes(b.read_bytes()[:5000])
    for words in ([a, b], [a, a], [a, "--output", a]):
        assert main(["report", *map(str, words)]) == 2
    damaged, twice, itself = capsys.readouterr().err.splitlines()
    assert damaged.startswith(f"anymps: {b} is damaged (")
    assert twice == f"anymps: {a} is named twice: each recording counts once"
    assert itself == f"anymps: {a} is a recording and will not be overwritten: name another file"
