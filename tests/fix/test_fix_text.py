"""The text of a script: its lines, where new ones go, what is guarded at its end, and which lines changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps.findings import RULES
from anymps.fix import Program, edits_for
from anymps.fix._check import _names_device
from anymps.fix._script import Script
from anymps.record import Site
from anymps.source import Insert, guarded_line, line_end, new_line, rows, rows_at, tree_of, with_guard


def script(text: str) -> Script:
    """A script of that text."""
    return Script(Path("train.py"), text, "utf-8")


def guarded(text: str) -> str:
    found = with_guard(text)
    assert found is not None
    return found


GUARD = 'if __name__ == "__main__":\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\nf()\n", f"import torch\n\n{GUARD}    f()\n"),
        ("import torch\n\nf()\n", f"import torch\n\n{GUARD}    f()\n"),
        ("import torch\n\n\nf()\n", f"import torch\n\n\n{GUARD}    f()\n"),
        ("f()\n", f"{GUARD}    f()\n"),
        ("\nf()\n", f"\n{GUARD}    f()\n"),
        ("import torch\n# one\n# two\nf()\ng()\n", f"import torch\n\n{GUARD}    # one\n    # two\n    f()\n    g()\n"),
        ("import torch\n# far\n\n# near\nf()\n", f"import torch\n# far\n\n{GUARD}    # near\n    f()\n"),
        ('class A:\n    """a\n# b"""\nf()\n', f'class A:\n    """a\n# b"""\n\n{GUARD}    f()\n'),
        ("import torch\r\nf()\r\n", "import torch\r\n\r\n" + GUARD.replace("\n", "\r\n") + "    f()\r\n"),
        ("import torch\nf()", f"import torch\n\n{GUARD}    f()"),
        ("import torch\nx = '''a\nb\n'''\n\ng(x)\n# end\n",
         f"import torch\n\n{GUARD}    x = '''a\nb\n'''\n\n    g(x)\n# end\n"),
        ("import torch\nx = f'''a\n{b}\nc'''\ng(x)\n",
         f"import torch\n\n{GUARD}    x = f'''a\n{{b}}\nc'''\n    g(x)\n"),
        ("from a import b\nx = 1\nasync def f(): pass\ny = 2\n",
         f"from a import b\nx = 1\nasync def f(): pass\n\n{GUARD}    y = 2\n"),
    ],
)  # fmt: skip
def test_what_is_guarded(text: str, expected: str) -> None:
    """The end with the comment right above it, below one empty line; texts over several lines keep their margin."""
    assert guarded(text) == expected


@pytest.mark.parametrize("text", ["", "import torch\n", "f()\ndef f(): pass\n", "if 'a' != __name__: g()\nf()\n"])
def test_what_cannot_be_guarded(text: str) -> None:
    """Nothing is there, or a guard of any form."""
    assert guarded_line(text) is None
    assert with_guard(text) is None


def test_another_test_is_no_guard() -> None:
    """Of another name, or in a loop."""
    assert guarded_line("if name == 'x':\n    f()\n") == 1
    assert guarded_line("while __name__:\n    f()\n") == 1


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("import a\nimport b\nx = 1\n", 3, "import a\nimport b\n\nd = 1\nx = 1\n"),
        ("import a\nx = 1\nimport b\n", 2, "import a\n\nd = 1\nx = 1\nimport b\n"),
        ("import a\nx = 1\nimport b\n", 3, "import a\n\nd = 1\nx = 1\nimport b\n"),
        ("import a\nx = 1\nimport b\n", 4, "import a\nx = 1\nimport b\n\nd = 1\n"),
        ("from a import (\n    b,\n    c,\n)\nx = 1\n", 5, "from a import (\n    b,\n    c,\n)\n\nd = 1\nx = 1\n"),
        ("import a\r\nx = 1\r\n", 2, "import a\r\n\r\nd = 1\r\nx = 1\r\n"),
        ("import a", 9, "import a\n\nd = 1\n"),
        ("import a\nif x:\n    import b\n", 9, "import a\n\nd = 1\nif x:\n    import b\n"),
        ("import a\nx = 1\n", 1, None),
        ("x = 1\n", 2, None),
    ],
)
def test_a_line_below_the_imports(text: str, line: int, expected: str | None) -> None:
    """Below the last import of the module that stands above a line; nowhere if there is none."""
    found = script(text).with_line_below_imports("d = 1", line)
    assert (None if found is None else found.text) == expected


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("d = 1", True),
        ("if x:\n    d = 1", True),
        ("(d := 1)", True),
        ("for d in x: pass", True),
        ("x = d", False),
        ("e = 1", False),
        ("def f():\n    d = 1", False),
        ("class A:\n    d = 1", False),
        ("async def f():\n    d = 1\nd = 2", True),
        ("x = lambda: (d := 1)", False),
    ],
)
def test_names_of_the_module(text: str, has: bool) -> None:
    """Those that get a value outside of functions and classes."""
    assert script(text).has_global("d") is has


BEFORE = "a = 1\nb = 2\nc = 3\nd = 4\n"


@pytest.mark.parametrize(
    ("after", "lines"),
    [
        (BEFORE, [1, 2, 3, 4]),
        ("new\n" + BEFORE, [2, 3, 4, 5]),
        ("a = 1\nb = 9\nc = 9\nd = 4\n", [1, 2, 3, 4]),
        ("a = 1\nd = 4\n", [1, 2, 2, 2]),  # what is gone stood where the next line is now
        ("a = 1\nx()\nb = 22\nc = 33\nd = 4\n", [1, 3, 4, 5]),
        ("a = 1\nb = 2 + c\nd = 4\n", [1, 2, 2, 3]),
        ("", [1, 1, 1, 1]),
    ],
)
def test_where_lines_stand_after_a_change(after: str, lines: list[int]) -> None:
    """Unchanged, moved, changed in place, gone, and the one most like it where the number of lines changed."""
    assert [new_line(BEFORE, after, line) for line in (1, 2, 3, 4)] == lines


def test_a_line_that_is_not_there_stays() -> None:
    """Behind the end of the text."""
    assert new_line("a\n", "b\n", 7) == 7
    assert new_line("", "b\n", 1) == 1


def test_lines_that_occur_often_move_like_others() -> None:
    """In a file of some hundred lines, too."""
    text = "step()\n" * 300
    assert [new_line(text, "new()\n" + text, line) for line in (1, 150, 300)] == [2, 151, 301]


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("x = y.to(device)\n", "x = y.float().to(device)\n", False),
        ('x = y.to("cpu")\n', 'x = y.float().to("cpu")\n', False),
        ("x = y.to(device)\n", "x = z(device=device)\n", True),
        ("device = f()\n", "device = f('mps')\n", True),
        ("x = f()\n", "x = f('cpu')\n", True),
        ("x = cpu\n", "x = 1\n", False),
        ("a.cuda()\n", "a.to(d)\n", True),
    ],
)
def test_a_change_that_names_a_device(tmp_path: Path, before: str, after: str, names: bool) -> None:
    """A line that only stands beside the name of one does not."""
    (tmp_path / "train.py").write_text(before)
    program = Program.read(tmp_path / "train.py")
    changed = program.main.with_text(after)
    assert changed is not None
    assert _names_device(program.having(changed)) is names


STATEMENTS = """\
x = f(
    1
)
if a:
    y = 2
else:
    z = 3
with b(
    c
):
    pass
def g(): return 1
"""


@pytest.mark.parametrize(
    ("line", "lines"),
    [(1, (1, 3)), (2, (1, 3)), (4, (4, 4)), (5, (5, 5)), (6, (6, 6)), (7, (7, 7)), (8, (8, 10)), (10, (8, 10)),
     (11, (11, 11)), (12, (12, 12)), (99, (99, 99))],
)  # fmt: skip
def test_the_lines_of_a_statement(line: int, lines: tuple[int, int]) -> None:
    """Of the innermost; of a block those of its head."""
    assert rows_at(tree_of(STATEMENTS), line) == lines


def test_a_statement_on_the_line_of_its_head() -> None:
    """It is the innermost there."""
    assert rows_at(tree_of("if a: f(\n    1\n)\n"), 1) == (1, 3)
    assert rows_at(tree_of("x = 1; y = f(\n    1\n)\n"), 1) == (1, 3)


def project(folder: Path, files: dict[str, str]) -> Program:
    """A repository of these files; the script is `train.py`."""
    (folder / ".git").mkdir()
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Program.read(folder / "train.py")


def test_what_a_program_changed(tmp_path: Path) -> None:
    """Each file as it was read beside what it is now, the script first; a file as it was is left out."""
    program = project(tmp_path, {"train": "a = 1\n", "b": "b = 1\n", "c": "c = 1\n", "d": "d = 1\n"})
    changed = program
    for name in ("c", "b", "train", "d"):
        made = program.script(tmp_path / f"{name}.py").with_text("d = 1\n" if name == "d" else f"{name} = 2\n")
        assert made is not None
        changed = changed.having(made)
    (tmp_path / "train.py").write_text("changed meanwhile\n")
    assert [(old.text, new.text) for old, new in changed.differences()] == [
        ("a = 1\n", "train = 2\n"),
        ("b = 1\n", "b = 2\n"),
        ("c = 1\n", "c = 2\n"),
    ]
    assert list(program.differences()) == []
    assert [changed.text_of(str(tmp_path / name)) for name in ("train.py", "b.py", "none.py")] == [
        "train = 2\n",
        "b = 2\n",
        "",
    ]


def test_a_line_that_takes_the_device_is_mended_where_it_is_chosen(tmp_path: Path) -> None:
    """Its finding is a suggestion that names those lines; so is an edit of a line that another finding changes."""
    program = project(tmp_path, {"train": "import torch\ndevice = torch.device('cuda')\nx = f(device)\n"})
    rule = next(rule for rule in RULES.values() if rule.project is not None)
    main = str(tmp_path / "train.py")

    def found(line: int, source: str, identity: str = rule.id) -> object:
        return RULES[identity].finding(Site(main, line, "<module>", source), what="It.", count=2)

    edits, suggestions = edits_for([found(3, "x = f(device)")], program)  # type: ignore[list-item]
    assert [edit.line for edit in edits] == [2]
    assert [suggestion.why for suggestion in suggestions] == ["its device is chosen at train.py:2"]
    edits, suggestions = edits_for([found(3, "x = f('cuda')")], program)  # type: ignore[list-item]
    assert [edit.line for edit in edits] == [2]
    assert [suggestion.why for suggestion in suggestions] == ["no safe edit of this line is known"]
    both = [found(3, "x = f(device)"), found(3, "x = f(device)", "MPS812")]
    edits, suggestions = edits_for(both, program)  # type: ignore[arg-type]
    assert [suggestion.finding.id for suggestion in suggestions] == [rule.id, "MPS812"]
    text = "import torch\noptimizer = torch.optim.Adam(p, fused=False, device='cuda')\nx = f(device)\n"
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    program = Program.read(tmp_path / "train.py")
    edits, suggestions = edits_for([*both, found(2, "o", "MPS812")], program)  # type: ignore[list-item]
    assert [(edit.finding.id, edit.line) for edit in edits] == [("MPS812", 2)]
    assert [(suggestion.finding.site.line, suggestion.why) for suggestion in suggestions] == [
        (3, "its device is chosen at train.py:2"),
        (3, "no safe edit of this line is known"),
        (2, "its line is changed for MPS812: run anymps fix again afterwards"),
    ]


def test_a_type_of_a_tensor_is_no_choice_of_a_device(tmp_path: Path) -> None:
    """`'cuda' if x.is_cuda else 'cpu'` follows its tensor: a finding elsewhere is not sent there."""
    program = project(tmp_path, {"train": "import torch\ndv = 'cuda' if x.is_cuda else 'cpu'\n"})
    rule = next(rule for rule in RULES.values() if rule.project is not None)
    found = rule.finding(Site(str(tmp_path / "train.py"), 1, "<module>", "import torch"), what="It.", count=1)
    edits, suggestions = edits_for([found], program)
    assert [edit.line for edit in edits] == [2]
    assert [suggestion.why for suggestion in suggestions] == ["no safe edit of this line is known"]


def test_which_files_are_the_scripts(tmp_path: Path) -> None:
    """What it imported, and what a finding is about; not other scripts of the folder."""
    asks = "import torch\nd = torch.device('cuda')\n"
    texts = {"train": "import torch\nimport a, broken\nx = f('cuda')\n", "broken": "x = ('cuda'\n"}
    texts |= dict.fromkeys(("a", "started", "other"), asks)
    texts["started"] += "def late():\n    device = 'cuda'\n"
    program = project(tmp_path, texts)
    rule = next(rule for rule in RULES.values() if rule.project is not None)

    def site(name: str, line: int) -> Site:
        return Site(str(tmp_path / f"{name}.py"), line, "<module>", "x = f('cuda')")

    found = [rule.finding(site("train", 3), what="It.", count=1), rule.finding(site("started", 1), what="It.", count=1)]
    loaded = [str(tmp_path / f"{name}.py") for name in ("a", "broken", "../far")]
    edits, suggestions = edits_for(found, program, loaded)
    assert [suggestion.finding.site.line for suggestion in suggestions] == [3, 1]
    places = sorted((edit.file.stem, edit.line) for edit in edits)
    assert places == [("a", 2), ("started", 2), ("started", 4)]


def test_lines_are_counted_as_python_counts_them() -> None:
    """A form feed between functions, or a line separator in a text, ends no line; all three ends of lines do."""
    text = 'a = 1\n\x0c\nb = "\u2028\x1c"\r\nc = 3\rd = 4'
    assert rows(text) == ("a = 1", "\x0c", 'b = "\u2028\x1c"', "c = 3", "d = 4")
    assert (rows(""), rows("\n"), rows("a\n\n")) == ((), ("",), ("a", ""))
    after = text.replace("d = 4", "d = 5")
    assert [new_line(text, after, line) for line in range(1, 6)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("after", "lines"),
    [
        ("i\ny\nx\nx\nz\n", [1, 2, 3, 4, 5]),  # the first of three alike
        ("i\nx\ny\nx\nz\n", [1, 2, 3, 4, 5]),
        ("i\ny\nx\ny\nz\n", [1, 2, 3, 4, 5]),
        ("d\ni\ny\nx\nx\nz\n", [2, 3, 4, 5, 6]),  # with a line more above them
        ("i\ny\nx\nx\nz\nd\n", [1, 2, 3, 4, 5]),
    ],
)
def test_lines_that_are_alike_are_told_apart(after: str, lines: list[int]) -> None:
    """By how few lines changed then: a line is not taken for the one above it, which was changed."""
    before = "i\nx\nx\nx\nz\n"
    assert [new_line(before, after, line) for line in range(1, 6)] == lines


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_are_those_of_the_file(tmp_path: Path, end: str, mark: bytes) -> None:
    """Of a new line below the imports, of a statement that becomes several, and of a guard; a byte order mark stays."""
    lines = ["import torch", "m = f().cuda()", "torch.cuda.empty_cache()", ""]
    path = tmp_path / "train.py"
    path.write_bytes(mark + end.join(lines).encode())
    script = Script.read(path)
    portable = RULES["MPS409"].edit
    assert portable is not None
    inserts: tuple[Insert, ...] = ()
    for line in (3, 2):
        made = script.edited(portable, line)
        assert made is not None
        script, inserts = made[0], (*inserts, *made[1])
    done = script.with_inserts(inserts, 2)
    assert done is not None
    guarded = with_guard(done.text)
    assert guarded is not None
    choice = '"mps" if torch.backends.mps.is_available() else "cuda" if torch.cuda.is_available() else "cpu"'
    written = [
        *("import torch", "", f"device = torch.device({choice})", "m = f().to(device)"),
        *("if torch.backends.mps.is_available():", "    torch.mps.empty_cache()"),
        *("else:", "    torch.cuda.empty_cache()", ""),
    ]
    assert done.data == mark + end.join(written).encode()
    inner = [f"    {row}" if row else "" for row in written[2:]]
    assert guarded == end.join([*written[:2], 'if __name__ == "__main__":', *inner])
    assert line_end("", f"a{end}") == line_end(f"a{end}b") == end
