"""Which lines of a changed file a run came to, and how a change of a line to which it did not come is marked."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from anymps.commands.fix._command import _unseen
from anymps.findings import RULES
from anymps.findings.advice._user_line import without_read
from anymps.findings.edits import LineEdit, Safety
from anymps.fix import Edit, Outcome, Program, Ran, Suggestion, edits_for, file_patch, later_uses, new_statements, prove
from anymps.fix._edits import apply_all
from anymps.record import Site
from processes import run_python

MODULE = "def used(x):\n    if x > 1:\n        return 2\n    return 1\n\n\ndef unused():\n    return 3\n"


def test_lines_that_ran(tmp_path: Path) -> None:
    """In watched files alone, in functions and threads too, through a link as well."""
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "other.py").write_text(MODULE)
    (tmp_path / "link").symlink_to(tmp_path)
    code = f"""
        import sys, threading
        from anymps.commands.isolated._reached_lines import ReachedLines
        path = {str(tmp_path / "module.py")!r}
        lines = ReachedLines({{path: [1, 2, 3, 4, 8], "/nowhere/other.py": [2]}})
        lines.watch()
        sys.path.insert(0, {str(tmp_path / "link")!r})
        import module, other
        other.used(1)
        thread = threading.Thread(target=module.used, args=(1,))
        thread.start()
        thread.join()
        print(sorted(line for file, line in lines.found if file == path), len({{file for file, _ in lines.found}}))
    """
    assert run_python(code).lines == ["[1, 2, 4] 1"]


def test_without_lines_nothing_is_watched() -> None:
    """A run without changes is as fast as ever."""
    code = """
        import sys
        from anymps.commands.isolated._reached_lines import ReachedLines
        ReachedLines({}).watch()
        print(sys.gettrace(), sys.version_info < (3, 12) or sys.monitoring.get_tool(3))
    """
    (line,) = run_python(code).lines
    assert line in ("None True", "None None")


def test_what_is_not_proved_is_marked_in_the_patch(tmp_path: Path) -> None:
    """Above the file that it changes, in a line that git and patch skip."""
    (tmp_path / "train.py").write_text("o = Adam(p)\n")
    program = Program.read(tmp_path / "train.py")
    site = Site(str(tmp_path / "train.py"), 1, "", "")
    edits, _ = edits_for([RULES["MPS812"].finding(site, what="It.", count=1)], program)
    ((old, new),) = apply_all(edits, program).differences()
    unproved = [Suggestion(edit.finding, "the run did not reach its line", edit) for edit in edits]
    assert file_patch(old, new, tmp_path, unproved).splitlines() == [
        "# not proven, the run did not reach its line: MPS812 in line 1",
        "--- a/train.py",
        "+++ b/train.py",
        "@@ -1 +1 @@",
        "-o = Adam(p)",
        "+o = Adam(p, fused=True)",
    ]


KEEPING = """\
history = []
total = 0.0
for step in range(9):
    history.append(loss.item())
    total += loss.item()
    if step == 8:
        print(
            total,
        )


def last(history):
    return history[-1]


class Mean:
    def add(self, loss):
        value = loss.item()
        self.total += value

    def result(self, value):
        return self.total / value


print(history[0])
"""


@pytest.mark.parametrize(
    ("line", "uses"),
    [
        (4, {"history": [25]}),
        (5, {"total": [8]}),
        (6, {}),
        (18, {"value": [19]}),
        (19, {"self.total": [22]}),
        (25, {}),
    ],
)
def test_lines_that_use_what_a_statement_keeps(line: int, uses: dict[str, list[int]]) -> None:
    """By name: that of a function there alone, an attribute in the whole file, and no other function's parameter."""
    assert later_uses(KEEPING, line) == uses


def test_a_file_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its lines are asked about."""
    text, parsed, parse = f"{KEEPING}# once\n", list[Any](), ast.parse

    def counted(source: Any, *given: Any, **named: Any) -> Any:
        parsed.append(source)
        return parse(source, *given, **named)

    monkeypatch.setattr(ast, "parse", counted)
    asked = [later_uses(text, line) for line in range(1, 27)]
    assert new_statements(KEEPING, text) == [26]
    assert (any(asked), parsed.count(text)) == (True, 1)


def test_lines_that_get_a_tensor_and_were_not_reached(tmp_path: Path) -> None:
    """They are told beside the proof: of a statement over several lines one is enough that was reached."""
    (tmp_path / "train.py").write_text(f"import torch\n{KEEPING}")
    program = Program.read(tmp_path / "train.py")
    main = str(program.main.path)

    def edits_at(*lines: int) -> list[Edit]:
        found = [
            RULES["MPS201"].finding(
                Site(main, line, "", program.main.line(line).strip()), what="It.", count=1,
                edit=LineEdit(without_read), safety=Safety.PROVED,
            )
            for line in lines
        ]  # fmt: skip
        return edits_for(found, program)[0]

    def outcomes(*reached: int) -> dict[int, Outcome]:
        def run(changed: Program) -> Ran:
            return Ran("", (0.5,), (), {}, reached=frozenset((main, line) for line in reached))

        proof = prove(program, edits_at(5, 6), Ran("", (0.5,), (), {"MPS201": 2}), run)
        return {outcome.edit.line: outcome for outcome in proof.outcomes}

    cut = outcomes(5, 6)
    assert [(line, cut[line].why, cut[line].unseen) for line in (5, 6)] == [
        (5, "", (("history", (26,)),)),
        (6, "", (("total", (9,)),)),
    ]
    assert list(_unseen(cut.values(), program.main.path)) == [
        "  not seen: line 26, where `history` of line 5 holds tensors now, not numbers",
        "  not seen: line 9, where `total` of line 6 holds tensors now, not numbers",
    ]
    assert list(_unseen(cut.values(), tmp_path / "other.py"))[1] == (
        "  not seen: line 9 of train.py, where `total` of line 6 holds tensors now, not numbers"
    )
    assert [outcome.unseen for outcome in outcomes(5, 6, 8, 26).values()] == [(), ()]
