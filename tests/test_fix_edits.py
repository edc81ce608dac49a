"""Edits of a script by its findings: the calls that change, the lines that are shown anew, what stays as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps._errors import UsageError
from anymps.findings import RULES, Finding
from anymps.findings.advice import portable
from anymps.fix import Edit, Program, Script, edits_for
from anymps.fix._calls import CHANGES
from anymps.fix._edits import apply_all
from anymps.record import Site


def script_of(folder: Path, text: str) -> Script:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return Script.read(path)


def program_of(script: Script) -> Program:
    return Program.read(script.path)


def edited(edits: list[Edit], script: Script) -> Script:
    """The script with all edits."""
    return apply_all(edits, program_of(script)).script(script.path)


def finding(script: Script, rule: str, line: int, fix: str = "", related: tuple[int, ...] = ()) -> Finding:
    """A finding at a line of the script."""

    def site(number: int) -> Site:
        return Site(str(script.path), number, "", "main", script.line(number))

    return RULES[rule].finding(
        site(line), what="It happened.", count=1, fix=fix, related_sites=[site(number) for number in related]
    )


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("MPS812", "o = optim.AdamW(p, lr=1e-3)  # why", "o = optim.AdamW(p, lr=1e-3, fused=True)  # why"),
        ("MPS812", "o = SGD(p, foreach=True, lr=1)", "o = SGD(p, lr=1, fused=True)"),
        ("MPS812", "o = SGD(p, lr=1, foreach=True)", "o = SGD(p, lr=1, fused=True)"),
        ("MPS812", "o = Adam(p, fused=False)", "o = Adam(p, fused=True)"),
        ("MPS812", "o = Adam(p, **options)", None),
        ("MPS812", "o = Adagrad(p)", None),
        ("MPS811", "o.zero_grad(set_to_none=False)", "o.zero_grad()"),
        ("MPS811", "o.zero_grad()", None),
        ("MPS404", "h = torch.zeros(2, x.size(0)).to(device)", "h = torch.zeros(2, x.size(0), device=device)"),
        ("MPS404", "h = torch.zeros(2, device=d).to(device)", None),
        ("MPS404", "h = make(2).to(device)", None),
        ("MPS404", "h = torch.zeros(2).to(dtype=half)", None),
        ("MPS801", "d = DataLoader(s, pin_memory=True)", "d = DataLoader(s, pin_memory=torch.cuda.is_available())"),
        ("MPS801", "d = DataLoader(s, pin_memory=pin)", None),
        ("MPS804", "d = DataLoader(s, num_workers=2)", "d = DataLoader(s, num_workers=2, persistent_workers=True)"),
        (
            "MPS804",
            "d = DataLoader(s, num_workers=args.j)",
            "d = DataLoader(s, num_workers=args.j, persistent_workers=args.j > 0)",
        ),
        ("MPS301", "x = torch.ones(2, dtype=torch.float64)", "x = torch.ones(2, dtype=torch.float32)"),
        ("MPS301", "x = y.double()", "x = y.float()"),
        ("MPS301", "x = torch.from_numpy(a)", "x = torch.from_numpy(a).float()"),
        ("MPS301", "x = y.to(device)", "x = y.float().to(device)"),
        ("MPS301", "x = y.float().to(device)", None),
        ("MPS111", 's = torch.load("a.pt")', 's = torch.load("a.pt", map_location="cpu")'),
    ],
)
def test_a_call_that_a_rule_changes(tmp_path: Path, rule: str, before: str, after: str | None) -> None:
    """Nothing else of the line changes; None: the call is none of those, or its options are not all there."""
    changed = script_of(tmp_path, f"{before}\n").with_calls(1, CHANGES[rule])
    assert (changed and changed.text) == (after and f"{after}\n")


def test_a_call_over_several_lines_keeps_its_form(tmp_path: Path) -> None:
    """Also with line ends of Windows. The line may be any of the statement's."""
    text = "o = AdamW(\r\n    p,  # all\r\n    lr=1e-3,  # rate\r\n)\r\nx = AdamW(p)\r\n"
    (tmp_path / "train.py").write_bytes(text.encode())
    changed = Script.read(tmp_path / "train.py").with_calls(2, CHANGES["MPS812"])
    assert changed is not None
    assert changed.data.decode() == text.replace("# rate\r\n", "# rate\r\n    fused=True,\r\n")


@pytest.mark.parametrize(
    ("source", "fix", "after"),
    [
        ("    total += loss.item()  # sum", "Add up on the device, `total += loss.detach()`, and read `total` later.",
         "    total += loss.detach()  # sum"),
        ("    x = x.cuda()", "Make `device = ...` once; here, write `x = x.to(device)`.", "    x = x.to(device)"),
        ("    losses.append(loss.item())", "Write `losses.append(loss.detach())`.", "    losses.append(loss.detach())"),
        ('    with autocast("cuda"):', "Write `with autocast(device.type):`.", "    with autocast(device.type):"),
        ("    print(loss.item())", "Print every 50 steps: `if step % 50 == 0: print(loss.item())`.", None),
        ("    model.cuda()", "Write `data.to(device)`.", None),
        ("    y = f(x.cpu())", "Write `f(x)`.", "    y = f(x)"),
        ("    y = f(x.cpu())", "As in `f(x)`.", None),
        ("    y = Adam(", "Write `Adam(..., fused=True)`.", None),
    ],
)  # fmt: skip
def test_the_line_that_a_finding_shows(tmp_path: Path, source: str, fix: str, after: str | None) -> None:
    """It stands for the statement if it is of its kind and about the same, or for a call of the same function."""
    block = f"for _ in range(2):\n{source}\n" + ("        pass\n" if source.endswith(":") else "")
    if source.endswith("("):
        block += "        p)\n"
    script = script_of(tmp_path, block)
    edits, suggestions = edits_for([finding(script, "MPS201", 2, fix)], program_of(script))
    if after is None:
        assert (edits, [it.why for it in suggestions]) == ([], ["no change of its line is known"])
    else:
        assert edited(edits, script).line(2) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s = torch.cuda.amp.GradScaler()", "s = torch.amp.GradScaler(device.type)"),
        ('s = torch.amp.GradScaler("cuda")', "s = torch.amp.GradScaler(device.type)"),
        ("with torch.cuda.amp.autocast():", "with torch.autocast(device.type):"),
        ('with torch.autocast("cuda", dtype=half):', "with torch.autocast(device.type, dtype=half):"),
        ('s = torch.load("a.pt", map_location="cuda")', 's = torch.load("a.pt", map_location=device)'),
        ("m = net().cuda()  # big", "m = net().to(device)  # big"),
    ],
)
def test_a_call_of_cuda_is_made_portable(tmp_path: Path, before: str, after: str) -> None:
    """By the line that the finding shows: scalers, autocast, checkpoints and moves."""
    block = "\n    pass" if before.endswith(":") else ""
    script = script_of(tmp_path, f"import torch\n{before}{block}\n")
    fix = f"Write `{portable(before.partition('  #')[0])}`."
    edits, _ = edits_for([finding(script, "MPS409", 2, fix)], program_of(script))
    assert edited(edits, script).text.endswith(f"\n{after}{block}\n")


def test_float64_is_mended_where_the_tensor_is_made(tmp_path: Path) -> None:
    """The line of the error is left as it is."""
    script = script_of(tmp_path, "import torch\nx = torch.ones(2, dtype=torch.double)\ny = x.to(device)\n")
    edits, _ = edits_for([finding(script, "MPS301", 3, related=(2,))], program_of(script))
    assert [edit.label for edit in edits] == ["MPS301 at train.py:2"]


def test_a_device_is_made_where_there_is_none(tmp_path: Path) -> None:
    """Below the imports, for lines that use it."""
    fix = "Make `device = ...` once; here, write `x = x.to(device)`."
    script = script_of(tmp_path, '"""Docs."""\nimport torch\n\nx = x.cuda()\n')
    edits, _ = edits_for([finding(script, "MPS409", 4, fix)], program_of(script))
    assert edited(edits, script).text == (
        '"""Docs."""\nimport torch\n\n'
        'device = torch.device(torch.accelerator.current_accelerator(True) or "cpu")\n\nx = x.to(device)\n'
    )
    known = script_of(tmp_path, 'device = "cuda"\nx = x.cuda()\n')
    edits, _ = edits_for([finding(known, "MPS409", 2, fix)], program_of(known))
    assert edited(edits, known).text == 'device = "cuda"\nx = x.to(device)\n'


def test_a_portable_script_pins_by_its_device(tmp_path: Path) -> None:
    """`torch.cuda.is_available()` would ask for CUDA again."""
    script = script_of(tmp_path, "import torch\nmodel.cuda()\nd = DataLoader(s, pin_memory=True)\n")
    found = [finding(script, "MPS409", 2, "Write `model.to(device)`."), finding(script, "MPS801", 3)]
    edits, _ = edits_for(found, program_of(script))
    assert edited(edits, script).text == (
        'import torch\n\ndevice = torch.device(torch.accelerator.current_accelerator(True) or "cpu")\n'
        'model.to(device)\nd = DataLoader(s, pin_memory=device.type == "cuda")\n'
    )


def test_the_end_of_a_script_is_guarded(tmp_path: Path) -> None:
    """What comes after the last import, function and class. Comments and texts over several lines stay as they are."""
    script = script_of(
        tmp_path,
        "import torch\n\nd = Data()\n\ndef f():\n    return d\n\n\n# epochs\nfor e in range(2):  # two\n    f()\n\n"
        'o = Adam(p)\nprint("""a\nb""", (1,\n  2))\n# end\n',
    )
    edits, suggestions = edits_for([finding(script, "MPS802", 6), finding(script, "MPS812", 13)], program_of(script))
    assert ([it.label for it in edits], suggestions) == (["MPS812 at train.py:13", "MPS802 at train.py:10"], [])
    assert edited(edits, script).text == (
        'import torch\n\nd = Data()\n\ndef f():\n    return d\n\n\nif __name__ == "__main__":\n    # epochs\n'
        "    for e in range(2):  # two\n        f()\n\n    o = Adam(p, fused=True)\n"
        '    print("""a\nb""", (1,\n      2))\n# end\n'
    )


@pytest.mark.parametrize(
    "text",
    ["import torch\n\ndef f():\n    pass\n", 'f()\nif __name__ == "__main__":\n    g()\n', "f()\ndef f(): pass\n"],
)
def test_a_script_that_cannot_be_guarded(tmp_path: Path, text: str) -> None:
    """It stays a suggestion."""
    script = script_of(tmp_path, text)
    edits, suggestions = edits_for([finding(script, "MPS802", 1)], program_of(script))
    why = "the script has a guard, or nothing after its last import, function and class"
    assert (edits, [it.why for it in suggestions]) == ([], [why])


def test_one_finding_a_line_and_the_others_are_told(tmp_path: Path) -> None:
    """From the last line to the first; what is installed is none of the project's."""
    script = script_of(tmp_path, "o = Adam(p)\no.zero_grad(set_to_none=False)\n")
    installed = tmp_path / "venv" / "site-packages" / "other.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("o = Adam(p)\n")
    elsewhere = RULES["MPS812"].finding(Site(str(installed), 1, "", "", ""), what="It.", count=1)
    found = [finding(script, "MPS812", 1), finding(script, "MPS811", 2), finding(script, "MPS812", 1), elsewhere]
    edits, suggestions = edits_for(found, program_of(script))
    assert [edit.label for edit in edits] == ["MPS811 at train.py:2", "MPS812 at train.py:1"]
    assert [it.why for it in suggestions] == [
        "its line is changed for MPS812: run anymps fix again afterwards",
        "its line is in no file of the project",
    ]
    assert script.line(9) == ""


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x = (\n", "{path}, line 1, is no Python that libcst can read"),
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
