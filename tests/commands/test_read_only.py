"""A file that its user made read-only is not replaced by any command; the line that says so names the chmod to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anymps._atomic import check_not_read_only
from anymps._errors import CheckpointError, UsageError
from anymps._manifest import Changes, write_manifest
from anymps.checkpoints import convert
from anymps.findings import write_baseline
from anymps.fix import check_may_write
from anymps.report import write_file


def _convert(path: Path) -> None:
    source = path.with_name("in.safetensors")
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    source.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    convert(source, path, force=True)


WRITERS: list[tuple[Callable[[Path], object], type[Exception], str]] = [
    (lambda path: check_may_write(path, force=True), UsageError, "{} is not written: it is read-only (chmod u+w {})"),
    (_convert, CheckpointError, "{} cannot be written: it is read-only (chmod u+w {})"),
    (lambda path: write_file(["x"], path), UsageError, "{} cannot be written: it is read-only (chmod u+w {})"),
    (
        lambda path: write_baseline(path, [], ()),
        UsageError,
        "the baseline {} cannot be written: it is read-only (chmod u+w {})",
    ),
    (lambda path: write_manifest(path, Changes({}, set(), {})), PermissionError, "it is read-only (chmod u+w {})"),
]


@pytest.mark.parametrize(("write", "error", "line"), WRITERS, ids=["fix", "convert", "report", "baseline", "manifest"])
@pytest.mark.parametrize("linked", [False, True], ids=["file", "link"])
def test_a_read_only_file_stays(
    tmp_path: Path, write: Callable[[Path], object], error: type[Exception], line: str, linked: bool
) -> None:
    """One line that names the chmod, and the file as it was; writable again, it is written."""
    file = tmp_path / "out.safetensors"
    file.write_text("")
    file.chmod(0o444)
    path = tmp_path / "link.safetensors" if linked else file
    if linked:
        path.symlink_to(file)
    with pytest.raises(error) as caught:
        write(path)
    text = caught.value.strerror if isinstance(caught.value, OSError) else str(caught.value)
    assert text == line.format(path, path)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("", 0o444)
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name not in (file.name, path.name)) in (
        [],
        ["in.safetensors"],
    )
    file.chmod(0o644)
    write(path)


def test_a_file_that_is_not_there_is_not_read_only(tmp_path: Path) -> None:
    """Nor is a link that leads nowhere."""
    check_not_read_only(tmp_path / "none")
    (tmp_path / "link").symlink_to(tmp_path / "none")
    check_not_read_only(tmp_path / "link")
