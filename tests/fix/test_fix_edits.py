"""Edits of a script by its findings: the calls that change, the lines that are shown anew, what stays as it stands."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from anymps._errors import UsageError
from anymps.findings import RULES, Finding
from anymps.findings.advice._user_line import every_10
from anymps.findings.edits import Safety
from anymps.findings.rules._mps108_cpu_only import _LOADING as LOADED
from anymps.findings.rules._mps301_dtypes import float32_edit
from anymps.findings.rules._mps403_detours import made_on_device
from anymps.fix import Edit, Program, Script, edits_for
from anymps.fix._edits import apply_all
from anymps.record import Site
from anymps.source import Edit as How
from anymps.source import LineEdit, rows

F32 = float32_edit("")
ZEROS = LineEdit(partial(made_on_device, "torch.zeros(2, x.size(0))", False))


def script_of(folder: Path, text: str) -> Script:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return Script.read(path)


def program_of(script: Script) -> Program:
    return Program.read(script.path)


def edited(edits: list[Edit], script: Script) -> Script:
    """The script with all edits."""
    return apply_all(edits, program_of(script)).script(script.path)


def finding(script: Script, rule: str, line: int, edit: How | None = None, related: tuple[int, ...] = ()) -> Finding:
    """A finding at a line of the script, or with its edit at those that it is related to."""

    def site(number: int) -> Site:
        return Site(str(script.path), number, "", dict(enumerate(rows(script.text), 1)).get(number, "").strip())

    sites = [site(number) for number in related]
    return RULES[rule].finding(
        site(line), what="It happened.", count=1, related_sites=sites, edit=edit, edit_at=sites, safety=SURE.get(rule)
    )


SURE = {"MPS301": Safety.PROVED, "MPS404": Safety.PROVED, "MPS111": Safety.PROVED, "MPS201": Safety.PROVED}


@pytest.mark.parametrize(
    ("rule", "edit", "before", "after"),
    [
        ("MPS812", None, "o = optim.AdamW(p, lr=1e-3)  # why", "o = optim.AdamW(p, lr=1e-3, fused=True)  # why"),
        ("MPS812", None, "o = SGD(p, foreach=True, lr=1)", "o = SGD(p, lr=1, fused=True)"),
        ("MPS812", None, "o = SGD(p, lr=1, foreach=True)", "o = SGD(p, lr=1, fused=True)"),
        ("MPS812", None, "o = SGD(p, lr=1, )", "o = SGD(p, lr=1, fused=True, )"),
        ("MPS812", None, "o = Adam(p, fused=False)", "o = Adam(p, fused=True)"),
        ("MPS812", None, "o = Adam(p, **options)", None),
        ("MPS812", None, "o = Adagrad(p)", None),
        ("MPS812", None, "größe = Adam(é, lr=1)  # ü", "größe = Adam(é, lr=1, fused=True)  # ü"),
        ("MPS811", None, "o.zero_grad(set_to_none=False)", "o.zero_grad()"),
        ("MPS811", None, "o.zero_grad(False)", "o.zero_grad()"),
        ("MPS811", None, "o.zero_grad(set_to_none=False, )", "o.zero_grad( )"),
        ("MPS811", None, "o.zero_grad()", None),
        ("MPS404", ZEROS, "h = torch.zeros(2, x.size(0)).to(device)", "h = torch.zeros(2, x.size(0), device=device)"),
        ("MPS404", ZEROS, "h = torch.zeros(2).to(device)", None),
        ("MPS404", ZEROS, "h = torch.zeros(2, x.size(0)).to(half)", None),
        ("MPS404", ZEROS, "h = torch.zeros(2, x.size(0)).mul(device)", None),  # moves nothing
        ("MPS801", None, "d = torch.D(s, pin_memory=True)",
         "d = torch.D(s, pin_memory=not torch.backends.mps.is_available())"),
        ("MPS801", None, "d = torch.D(s, pin_memory=pin)", None),
        ("MPS801", None, "d = D(s, pin_memory=True)", None),  # nothing here is known to be torch
        ("MPS804", None, "d = DataLoader(s, num_workers=2)",
         "d = DataLoader(s, num_workers=2, persistent_workers=True)"),
        ("MPS804", None, "d = DataLoader(s, num_workers=args.j)",
         "d = DataLoader(s, num_workers=args.j, persistent_workers=args.j > 0)"),
        ("MPS301", F32, "x = torch.ones(2, dtype=torch.float64)", "x = torch.ones(2, dtype=torch.float32)"),
        ("MPS301", F32, "x = y.double()", "x = y.float()"),
        ("MPS301", F32, "x = torch.from_numpy(a)", "x = torch.from_numpy(a).float()"),
        ("MPS301", F32, "x = y.to(device)", "x = y.float().to(device)"),
        ("MPS301", F32, "x = y.float().to(device)", None),
        ("MPS301", F32, "x, y = x.to(device), y.to(device)", None),  # which of them is not known
        ("MPS111", None, 'm.load_state_dict(torch.load("a.pt"))',
         'm.load_state_dict(torch.load("a.pt", map_location="cpu"))'),
        ("MPS111", None, 's = torch.load("a.pt")', None),  # what is done with it may need another device
    ],
)  # fmt: skip
def test_a_call_that_a_rule_changes(
    tmp_path: Path, rule: str, edit: How | None, before: str, after: str | None
) -> None:
    """Nothing else of the line changes; None: the call is none of those, or its options are not all there."""
    if rule == "MPS111":
        edit = LOADED
    script = script_of(tmp_path, f"import torch\n{before}\n" if "torch" in before else f"{before}\n")
    edits, _ = edits_for([finding(script, rule, script.text.count("\n"), edit)], program_of(script))
    changed = edited(edits, script)
    assert (changed.text == script.text, changed.text.splitlines()[-1]) == (after is None, after or before)
    again, _ = edits_for([finding(changed, rule, script.text.count("\n"), edit)], program_of(changed))
    assert edited(again, changed).text == changed.text or rule == "MPS801"


def test_a_call_over_several_lines_keeps_its_form(tmp_path: Path) -> None:
    """Also with line ends of Windows. The line may be any of the statement's."""
    text = "o = AdamW(\r\n    p,  # all\r\n    lr=1e-3,  # rate\r\n)\r\nx = AdamW(p)\r\n"
    (tmp_path / "train.py").write_bytes(text.encode())
    script = Script.read(tmp_path / "train.py")
    edits, _ = edits_for([finding(script, "MPS812", 2)], program_of(script))
    changed = edited(edits, script)
    assert changed.data.decode() == text.replace("# rate\r\n", "# rate\r\n    fused=True,\r\n")


def test_float64_is_mended_where_the_tensor_is_made(tmp_path: Path) -> None:
    """The line of the error is left as it is."""
    script = script_of(tmp_path, "import torch\nx = torch.ones(2, dtype=torch.double)\ny = x.to(device)\n")
    edits, _ = edits_for([finding(script, "MPS301", 3, F32, related=(2,))], program_of(script))
    assert [f"{edit.finding.id} at {edit.file.name}:{edit.line}" for edit in edits] == ["MPS301 at train.py:2"]


def test_what_only_a_person_may_change_is_left_alone(tmp_path: Path) -> None:
    """A line that prints less often is advice: no machine makes it."""
    script = script_of(tmp_path, "for i in range(9):\n    print(loss.item())\n")
    advised = RULES["MPS202"].finding(
        Site(str(script.path), 2, "", "print(loss.item())"),
        what="It.", count=1, edit=LineEdit(every_10), safety=Safety.ADVICE,
    )  # fmt: skip
    edits, suggestions = edits_for([advised], program_of(script))
    assert (edits, [suggestion.why for suggestion in suggestions]) == ([], ["no safe edit of this line is known"])


def test_the_end_of_a_script_is_guarded(tmp_path: Path) -> None:
    """What comes after the last import, function and class. Comments and texts over several lines stay as they are."""
    script = script_of(
        tmp_path,
        "import torch\n\nd = Data()\n\ndef f():\n    return d\n\n\n# epochs\nfor e in range(2):  # two\n    f()\n\n"
        'o = Adam(p)\nprint("""a\nb""", (1,\n  2))\n# end\n',
    )
    edits, suggestions = edits_for([finding(script, "MPS802", 6), finding(script, "MPS812", 13)], program_of(script))
    assert ([f"{edit.finding.id} at {edit.file.name}:{edit.line}" for edit in edits], suggestions) == (
        ["MPS812 at train.py:13", "MPS802 at train.py:10"],
        [],
    )
    assert edited(edits, script).text == (
        'import torch\n\nd = Data()\n\ndef f():\n    return d\n\n\nif __name__ == "__main__":\n    # epochs\n'
        "    for e in range(2):  # two\n        f()\n\n    o = Adam(p, fused=True)\n"
        '    print("""a\nb""", (1,\n      2))\n# end\n'
    )


def test_a_script_that_cannot_be_guarded(tmp_path: Path) -> None:
    """It stays a suggestion."""
    script = script_of(tmp_path, 'f()\nif __name__ == "__main__":\n    g()\n')
    edits, suggestions = edits_for([finding(script, "MPS802", 1)], program_of(script))
    why = "the script has a guard, or nothing after its last import, function and class"
    assert (edits, [suggestion.why for suggestion in suggestions]) == ([], [why])


def test_one_finding_a_line_and_the_others_are_told(tmp_path: Path) -> None:
    """From the last line to the first; what is installed is none of the project's."""
    script = script_of(tmp_path, "o = Adam(p)\no.zero_grad(set_to_none=False)\n")
    installed = tmp_path / "venv" / "site-packages" / "other.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("o = Adam(p)\n")
    elsewhere = RULES["MPS812"].finding(Site(str(installed), 1, "", "", ""), what="It.", count=1)
    nowhere = RULES["MPS002"].finding(Site("", 0, "", "", ""), what="Nothing.", count=1)
    found = [
        finding(script, "MPS812", 1),
        finding(script, "MPS811", 2),
        finding(script, "MPS812", 1),
        elsewhere,
        nowhere,
    ]
    edits, suggestions = edits_for(found, program_of(script))
    assert [f"{edit.finding.id} at {edit.file.name}:{edit.line}" for edit in edits] == [
        "MPS811 at train.py:2",
        "MPS812 at train.py:1",
    ]
    assert [suggestion.why for suggestion in suggestions] == [
        "its line is changed for MPS812: run anymps fix again afterwards",
        "its line is not in a file of the project",
        "it is about no single line",
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x = 1\n\0", "{path} is not valid Python: source code string cannot contain null bytes"),
        (b"x = (\n", "{path}, line 1, is not valid Python: '(' was never closed"),
        (b"# coding: nonsense\n", "{path} cannot be read: unknown encoding: nonsense"),
        (b"\xff\xfe", "{path} cannot be read: invalid or missing encoding declaration"),
        (None, "{path} cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, data: bytes | None, words: str) -> None:
    """One line, whatever it holds."""
    path = tmp_path / "bad.py"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UsageError) as raised:
        Script.read(path)
    assert str(raised.value) == words.format(path=path)
