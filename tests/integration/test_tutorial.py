"""The tutorial, done as it says: its files, its commands in their order, and what each of them is said to show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from processes import PATIENCE, clean_environment

pytestmark = pytest.mark.integration
PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_the_tutorial(tmp_path: Path) -> None:
    """From a script for CUDA to two gates that are green."""
    text = PAGE.read_text(encoding="utf-8")
    for name, content in re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(content, encoding="utf-8")
    (loop,) = re.findall(r"```python\n(    images, .*?)```", text, re.DOTALL)
    begin, _, rest = text.partition("## 1.")
    assert begin and sorted(path.name for path in tmp_path.iterdir()) == ["model.py", "test_model.py", "train.py"]
    blocks = re.findall(r"```console\n(.*?)```", rest.replace("\\\n", ""), re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    ran, fix, apply, again, gate, plan, first, red, last = commands

    shown = _said(ran, tmp_path, 4)
    _is_shown(text, "Change first: train.py:16", shown)
    _said(fix, tmp_path, 0)
    patch = (tmp_path / "fix.patch").read_text(encoding="utf-8")
    (diff,) = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    assert diff in patch
    _said(apply, tmp_path, 0)
    _is_shown(text, "  MPS412  Copies to mps", _said(again, tmp_path, 0))

    script = tmp_path / "train.py"
    content = script.read_text(encoding="utf-8")
    start, end = content.index("    images, labels"), content.index("\n\nif __name__")
    script.write_text(content[:start] + loop + content[end:], encoding="utf-8")
    assert "No findings." in _said(gate, tmp_path, 0)
    assert "On M1 8GB: fits." in _said(plan, tmp_path, 0)

    assert "1 passed, 1 xfailed" in _said(first, tmp_path, 0)
    assert "test_model.py::test_confidence TypeError\n" in (tmp_path / "mps-failures.txt").read_text(encoding="utf-8")
    model = tmp_path / "model.py"
    model.write_text(model.read_text(encoding="utf-8").replace("logits.double()", "logits.float()"), encoding="utf-8")
    _said(red, tmp_path, 1)
    assert "2 passed" in _said(last, tmp_path, 0)
    assert "::" not in re.sub("(?m)^#.*", "", (tmp_path / "mps-failures.txt").read_text(encoding="utf-8"))


def _said(line: str, folder: Path, status: int) -> str:
    """What a command line prints; it must end with `status`."""
    for tool in ("anymps", "pytest"):
        line = re.sub(rf"^{tool} ", f"{sys.executable} -m {tool} ", line)
    ended = subprocess.run(
        line,
        check=False,
        shell=True,
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == status, f"{line}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout + ended.stderr


def _is_shown(text: str, start: str, said: str) -> None:
    """What the page shows from `start` on was said, but for times and the breaks of lines."""
    (shown,) = [block for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL) if start in block]
    for line in shown.splitlines():
        assert line in said, f"{line}\n{said}"
