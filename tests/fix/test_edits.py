"""Edits: new code is built from the user's own syntax tree, and means the same on every other machine."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import pytest

import anymps
from anymps.findings import RULES
from anymps.findings.advice import UserLine
from anymps.findings.advice._user_line import collected, every_10, without_read
from anymps.findings.edits import (
    TYPE_WITH_MPS,
    CodeChange,
    Placed,
    Safety,
    change_at,
    chosen_by_name,
    place_at,
    portable,
)
from anymps.fix import Script
from anymps.record import Site
from anymps.source import CallEdit, Edit, Guard, LineEdit, Place, build, place_in_file

MPS = "torch.backends.mps.is_available()"
SOURCE = Path(anymps.__file__).parent


def place_of(line: str, head: str = "import torch") -> Place | None:
    """The place of the first line of some code below a head; a block gets a body."""
    body = {":": "\n    pass", "@": "\ndef f():\n    pass"}.get(line[-1] if line.endswith(":") else line[0], "")
    text = f"{head}\n{line}{body}\n"
    return place_in_file(text, ast.parse(text), head.count("\n") + 2)


def new(line: str, head: str = "import torch", edit: Edit | None = None) -> str:
    """What an edit makes of a line, empty if nothing; what it needs elsewhere comes first."""
    place = place_of(line, head)
    assert place is not None
    built = build(edit or LineEdit(portable), place)
    return "" if built is None else "\n".join([*(insert.code for insert in built.inserts), built.code])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("t = 'cuda' if 'cuda' in d else 'cpu'  # why",
         "t = 'mps' if 'mps' in d else 'cuda' if 'cuda' in d else 'cpu'"),
        ('f(t="cuda" if d.startswith("cuda") else "cpu")',
         'f(t="mps" if d.startswith("mps") else "cuda" if d.startswith("cuda") else "cpu")'),
        ('t = "cuda" if d.type == "cuda" else "cpu"',
         't = "mps" if d.type == "mps" else "cuda" if d.type == "cuda" else "cpu"'),
        ('t = "cuda" if d == "cuda" and torch.cuda.is_available() else "cpu"', ""),
        ('t = "cuda" if not "cuda" in d else "cpu"', ""),
        ('t = "cuda" if "cuda" not in d else "cpu"', ""),
        ('t = "mps" if m else "cuda" if "cuda" in d else "cpu"', ""),
        ('t = "cuda" if cuda else "cpu"', ""),
    ],
)  # fmt: skip
def test_a_type_by_name_gets_mps(line: str, expected: str) -> None:
    """The same test for mps comes before that for CUDA."""
    assert new(line, edit=TYPE_WITH_MPS).removesuffix("  # why") == expected


CHOICES = [
    # Options stay, and the same question is asked about mps before.
    ('d = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")',
     f'd = torch.device("mps" if {MPS} and not args.no_cuda else "cuda" if torch.cuda.is_available() and not '
     'args.no_cuda else "cpu")'),
    ('d = torch.device("cuda" if use_cuda else "cpu")',
     f'd = torch.device("mps" if {MPS} and use_cuda else "cuda" if use_cuda else "cpu")'),
    ('d = torch.device("cuda") if a or b else torch.device("cpu")',
     f'd = torch.device("mps") if {MPS} and (a or b) else torch.device("cuda") if a or b else torch.device("cpu")'),
    ('d = f"cuda:{args.gpu}"', None),
    ('device = f"cuda:{args.gpu}"', f'device = "mps" if {MPS} else f"cuda:{{args.gpu}}"'),
    ('device = "cuda:%d" % gpu', f'device = "mps" if {MPS} else "cuda:%d" % gpu'),
    ('device = "cuda:{}".format(gpu)', f'device = "mps" if {MPS} else "cuda:{{}}".format(gpu)'),
    ('device = torch.device("cuda", rank)',
     f'device = torch.device("mps") if {MPS} else torch.device("cuda", rank)'),
    ('kind = torch.device("cuda", rank).type',
     f'kind = (torch.device("mps") if {MPS} else torch.device("cuda", rank)).type'),
    ("model.cuda(args.gpu)", f'if {MPS}:\n    model.to("mps")\nelse:\n    model.cuda(args.gpu)'),
    ("model = model.cuda(gpu)", f'model = model.to("mps") if {MPS} else model.cuda(gpu)'),
    ("y = f(x.cuda(1, non_blocking=True))", None),
    ("x = x.cuda(gpu, non_blocking=True)",
     f'x = x.to("mps", non_blocking=True) if {MPS} else x.cuda(gpu, non_blocking=True)'),
    # A device from an option: its default is the line to change.
    ("device = torch.device(args.device)", None),
    ("model.to(args.device)", None),
    ('p.add_argument("--device", default="cuda")', f'p.add_argument("--device", default="mps" if {MPS} else "cuda")'),
    ("p.add_argument('--dev', default='cuda:0')",
     f"p.add_argument('--dev', default='mps' if {MPS} else 'cuda:0')"),
    ('p.add_argument("--gpu_type", default="cuda")',
     f'p.add_argument("--gpu_type", default="mps" if {MPS} else "cuda")'),
    ('p.add_argument("--model", default="cuda")', None),
    ('d = torch.device("cuda") if x.is_cuda and a else torch.device("cpu")', None),
    ('d = "cuda" if x.is_cuda else "meta"', None),
    ('args.device = "cuda"', f'args.device = "mps" if {MPS} else "cuda"'),
    ('def f(x, device="cuda"):', f'def f(x, device="mps" if {MPS} else "cuda"):'),
    ('device: str = "cuda:0"', f'device: str = "mps" if {MPS} else "cuda:0"'),
    ('c = {"device": "cuda", "name": "cuda"}', f'c = {{"device": "mps" if {MPS} else "cuda", "name": "cuda"}}'),
    ('d = os.environ.get("DEVICE", "cuda")', f'd = os.environ.get("DEVICE", "mps" if {MPS} else "cuda")'),
    ('device = args.device or "cuda"', f'device = args.device or ("mps" if {MPS} else "cuda")'),
    ('name = "cuda"', None),
    ('print("on", "cuda")', None),
    # A device compared by name, and what is portable already, stay.
    ('if device.type == torch.device("cuda").type and not torch.cuda.is_available():', None),
    ('if args.device == "cuda":', None),
    ('if "cuda" in str(device):', None),
    ('if device.startswith("cuda"):', None),
    ('x = x.cuda() if device.type == "cuda" else x', None),
    ('d = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"', None),
    ("ok = torch.backends.mps.is_available() or torch.cuda.is_available()", None),
    # Questions, functions, autocast.
    ("args.cuda = not args.no_cuda and torch.cuda.is_available()",
     f"args.cuda = not args.no_cuda and ({MPS} or torch.cuda.is_available())"),
    ("if not torch.cuda.is_available():", f"if not ({MPS} or torch.cuda.is_available()):"),
    ("torch.cuda.synchronize()", "torch.accelerator.synchronize()"),
    # What nothing takes the value of is a statement of an `if`, and a seed is that of every device.
    ("torch.cuda.empty_cache()",
     f"if {MPS}:\n    torch.mps.empty_cache()\nelse:\n    torch.cuda.empty_cache()"),
    ("f(torch.cuda.empty_cache())", f"f(torch.mps.empty_cache() if {MPS} else torch.cuda.empty_cache())"),
    ("torch.cuda.reset_peak_memory_stats()",
     f"if {MPS}:\n    torch.accelerator.reset_peak_memory_stats()\nelse:\n    torch.cuda.reset_peak_memory_stats()"),
    ("torch.cuda.manual_seed_all(s + 1)", "torch.manual_seed(s + 1)"),
    ("torch.cuda.manual_seed(s)", "torch.manual_seed(s)"),
    ("print(torch.cuda.memory_allocated() / 1e9)",
     f"print((torch.mps.current_allocated_memory() if {MPS} else torch.cuda.memory_allocated()) / 1e9)"),
    ("x = torch.cuda.FloatTensor(3)", None),
    ("torch.set_default_tensor_type('torch.cuda.FloatTensor')", None),  # the default device is not for torch.Tensor
    ("torch.set_default_tensor_type(torch.cuda.FloatTensor)", None),
    ("ok = torch.cuda.is_available() and torch.cuda.is_bf16_supported()", None),  # the second would raise on a Mac
    ("print(torch.cuda.get_device_name(), torch.cuda.memory_allocated())", None),
    ("kind = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor", None),
    ('with torch.autocast("cuda", enabled=False):', f'with torch.autocast("mps" if {MPS} else "cuda", enabled=False):'),
    ('@torch.autocast("cuda", dtype=half)', f'@torch.autocast("mps" if {MPS} else "cuda", dtype=half)'),
    ("with torch.cuda.amp.autocast(args.amp):", f'with torch.autocast("mps" if {MPS} else "cuda", enabled=args.amp):'),
    ("s = torch.cuda.amp.GradScaler(2.0)", f's = torch.amp.GradScaler("mps" if {MPS} else "cuda", 2.0)'),
    ("s = torch.amp.GradScaler()", f's = torch.amp.GradScaler("mps" if {MPS} else "cuda")'),
    ("s = torch.amp.GradScaler(**options)", None),
    ('print(f"{torch.cuda.is_available()}")', None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), CHOICES)
def test_a_line_that_asks_for_cuda(line: str, expected: str | None) -> None:
    """mps comes first, and behind it all stays as it is: options, indices, the other branches."""
    if line.startswith("y = f(x.cuda(1"):
        expected = f'y = f(x.to("mps", non_blocking=True) if {MPS} else x.cuda(1, non_blocking=True))'
    assert new(line) == (expected or "")


@pytest.mark.parametrize(
    ("head", "line", "expected"),
    [
        ("import torch as th", 'device = "cuda"', 'device = "mps" if th.backends.mps.is_available() else "cuda"'),
        ("from torch import nn", 'device = "cuda"', ""),  # torch has no name there
        ("import json", 'device = "cuda"', ""),
        ("import torch", "torch.cuda.set_device(args.local_rank)",
         "torch.accelerator.set_device_index(args.local_rank)"),
        ("import torch", "torch.cuda.set_device(self.device)",
         "torch.accelerator.set_device_index(torch.device(self.device).index or 0)"),
        ("from utils import *\nx = torch.ones(2)", 'device = "cuda"', f'device = "mps" if {MPS} else "cuda"'),
        ("from utils import *\nx = nn.ones(2)", 'device = "cuda"', ""),
        ("from utils import *\ntorch = load()\nx = torch.ones(2)", 'device = "cuda"', ""),
        ("import torch\nfrom torch.cuda.amp import autocast", "with autocast():",
         f'with torch.autocast("mps" if {MPS} else "cuda"):'),
        ("import torch\nfrom lib import autocast", "with autocast():", ""),
        ("import torch", "x = x.cuda()",
         f'device = torch.device("mps" if {MPS} else "cuda" if torch.cuda.is_available() else "cpu")\n'
         "x = x.to(device)"),
        ('import torch\ndevice = torch.device("cuda")', "x = x.cuda(non_blocking=True)",
         "x = x.to(device, non_blocking=True)"),
        ("import torch\ndevice = torch.device(name)", "x = x.cuda()", f'x = x.to("mps" if {MPS} else "cuda")'),
        ("import torch\ndef f(device): pass", "x = x.cuda()", f'x = x.to("mps" if {MPS} else "cuda")'),
    ],
)  # fmt: skip
def test_names_are_those_of_the_file(head: str, line: str, expected: str) -> None:
    """torch by its own name there, `device` where it is CUDA's; else no code."""
    assert new(line, head) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('d = torch.device("cuda") if x.y.is_cuda else torch.device("cpu")', "d = x.y.device"),
        ('d = torch.device("cuda" if x.is_cuda else "cpu")', "d = torch.device(x.device.type)"),
    ],
)
def test_a_device_that_is_a_tensors(line: str, expected: str) -> None:
    """`is_cuda` is never true on mps: what stands there is the tensor's own device."""
    assert new(line) == expected


@pytest.mark.parametrize(
    ("test", "head", "body"),
    [
        ("x.is_cuda", "if x.is_cuda or x.is_mps:", "y = y.to(x.device)"),
        ("self.w.is_cuda and a", "if (self.w.is_cuda or self.w.is_mps) and a:", "y = y.to(self.w.device)"),
        ("not x.is_cuda", "", f'y = y.to("mps" if {MPS} else "cuda")'),
        ("f(x).is_cuda", "", f'y = y.to("mps" if {MPS} else "cuda")'),
    ],
)
def test_a_block_for_tensors_on_cuda(test: str, head: str, body: str) -> None:
    """`if x.is_cuda: y = y.cuda()`: entered on mps, too, and y comes to where x is."""
    text = f"import torch\ndef f(self, x, y, device, a):\n    if {test}:\n        y = y.cuda()\n    return y\n"
    places = [place_in_file(text, ast.parse(text), line) for line in (3, 4)]
    built = [build(LineEdit(portable), place) for place in places if place is not None]
    assert [edit.code if edit is not None else "" for edit in built] == [head, body]


def test_a_block_for_tensors_on_cuda_from_its_end(tmp_path: Path) -> None:
    """Edits are made from the last line to the first: the head still sees what its block was."""
    (tmp_path / "a.py").write_text("import torch\nx = y = f()\nif x.is_cuda:\n    y = y.cuda()\n")
    script = Script.read(tmp_path / "a.py")
    for line in (4, 3):
        made = script.edited(LineEdit(portable), line)
        assert made is not None
        script = made[0]
    assert script.text == "import torch\nx = y = f()\nif x.is_cuda or x.is_mps:\n    y = y.to(x.device)\n"


@pytest.mark.parametrize(
    ("head", "line", "body"),
    [
        ('if device.type == "cuda":', 3, "torch.cuda.synchronize()"),
        ("if a:\n    pass\nelif torch.backends.mps.is_available():", 5, "torch.cuda.synchronize()"),
        ("if x.is_cuda:", 2, "y = fast(y)"),  # a block that moves nothing there may be CUDA's own
        ("if torch.cuda.is_available():", 2, "print(torch.cuda.get_device_name(0))"),  # which mps has not
    ],
)
def test_a_test_of_the_device_around_a_line(head: str, line: int, body: str) -> None:
    """What only CUDA comes to stays CUDA's; so does a chain that asks for mps itself."""
    text = f"import torch\n{head}\n    {body}\n"
    place = place_in_file(text, ast.parse(text), line)
    assert place is not None
    assert build(LineEdit(portable), place) is None


@pytest.mark.parametrize(
    ("around", "line", "expected"),
    [
        ("import torch as t\nx = 1\ny = x\nm.to('cuda')", 4,
         "m.to('mps' if t.backends.mps.is_available() else 'cuda')"),
        ("m.to('cuda')", 1, None),  # torch may have any name
        ("o = Adam(\n    p,\n    lr=1,\n)", 2, None),  # a part of a call is no statement
        ("o = f(a,\n      b=torch.zeros(3, device='cuda'),\n      c=1)", 2,
         "o = f(a,\n      b=torch.zeros(3, device='mps' if torch.backends.mps.is_available() else 'cuda'),\n"
         "      c=1)"),
        ("      b=torch.zeros(3, device='cuda'),\n      c=1)", 1, None),
        ("def f(\n    device='cuda',\n    x=torch.a,\n):", 1, "def f(\n    device='mps' if torch.backends.mps."
         "is_available() else 'cuda',\n    x=torch.a,\n):"),
    ],
)  # fmt: skip
def test_a_line_of_a_recording(around: str, line: int, expected: str | None) -> None:
    """By the lines that are recorded of its file; whatever they do not tell is not written."""
    rows = around.split("\n")
    place = place_at(Site("train.py", line, source=rows[line - 1].strip(), first=1, around=around))
    built = build(LineEdit(portable), place) if place is not None else None
    assert (built.code if built else None) == expected


@pytest.mark.parametrize(("around", "column"), [("for x in y:\n    s += x.item()", 5), ("", 0)])
def test_a_change_has_the_column_of_the_file(around: str, column: int) -> None:
    """Counted from 1, where lines of the file are recorded; the text of a line alone does not tell it."""
    site = Site("train.py", 3, source="s += x.item()", first=2 if around else 0, around=around)
    change = change_at(Placed(LineEdit(without_read), (site,), Safety.PROVED))
    assert change is not None
    assert (change.line, change.column, change.old) == (3, column, "s += x.item()")


def test_other_lines_of_the_file_tell_its_names() -> None:
    """Far away in the file: the import, where another finding's lines hold it."""
    site = Site(
        "train.py", 50, source="m.to('cuda')", first=50, around="m.to('cuda')", recorded={1: "import torch as t"}
    )
    place = place_at(site)
    assert place is not None
    built = build(LineEdit(portable), place)
    assert built is not None
    assert built.code == "m.to('mps' if t.backends.mps.is_available() else 'cuda')"


CORPUS = [
    "optimizer = AdamW(model.parameters(), lr=1e-3)",
    "optimizer = torch.optim.SGD(\n    model.parameters(),\n    lr=0.1,  # rate\n)",
    "optimizer = torch.optim.SGD(\n    model.parameters(), lr=0.1)",
    "self.opt = optim.Adam([{'params': ä}, {'params': b}], lr=1)",
    "opt.zero_grad(set_to_none=False)",
    "losses.append(loss.item())",
    "found.extend(x.cpu())",
    "print(f'{loss.item():.3f} {step}')",
    "total += float(loss) * len(x); n += 1",
    "return loss.item(), acc.item()",
    "x, y = x.cuda(), y.cuda(non_blocking=True)",
    "model = nn.DataParallel(Net().cuda()).cuda()",
    "loader = DataLoader(data, 8, True, num_workers=args.workers, pin_memory=True)",
    "with torch.no_grad(), torch.cuda.amp.autocast(): y = model(x.cuda())",
    "lambda x: x.cuda()",
    "x = [t.cuda() for t in batch]",
    "@torch.cuda.amp.autocast()",
    "elif torch.cuda.is_available():",
    "a = b if torch.cuda.is_available() else c",
    "assert torch.cuda.is_available()",
    'torch.set_default_device("cuda")',
    'device = torch.device("cuda:" + str(rank) if torch.cuda.is_available() else "cpu")',
    *(line for line, _ in CHOICES),
]
EDITS = [
    *dict.fromkeys(rule.edit for rule in RULES.values() if rule.edit is not None and not isinstance(rule.edit, Guard)),
    LineEdit(without_read), LineEdit(collected), LineEdit(every_10), LineEdit(chosen_by_name),
]  # fmt: skip
EXAMPLES = [
    f"{rule.example.setup}\n{half}"
    for rule in RULES.values() if rule.example is not None
    for half in (rule.example.bad, rule.example.good)
]  # fmt: skip


def bound(text: str) -> set[str]:
    """Every name that a text gives a value or imports, and Python's own."""
    tree, names = ast.parse(text), set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names


@pytest.mark.parametrize("edit", EDITS, ids=lambda value: getattr(getattr(value, "rewrite", None), "__name__", "call"))
def test_every_edit_on_every_line(edit: Edit) -> None:
    """The file parses, no name is new but what comes with it, and once more changes nothing."""
    bodies = {":": "\n    pass", "@": "\ndef f():\n    pass"}
    files = []
    for line in CORPUS:
        line = line if not line.startswith("elif") else f"if a: pass\n{line}"
        line += bodies.get(":" if line.endswith(":") else line[0], "")
        if line.startswith("return"):
            line = f"def f():\n    {line}"
        files.append(f"import torch\nfor i, x in enumerate(loader):\n    {line.replace(chr(10), chr(10) + '    ')}\n")
    changes = 0
    for text in [*files, *EXAMPLES]:
        script = Script(Path("train.py"), text, "utf-8")
        for number in range(1, text.count("\n") + 1):
            made = script.edited(edit, number)
            if made is None:
                continue
            changes += 1
            changed, inserts = made
            assert bound(changed.text) <= bound(text) | {insert.name for insert in inserts}
            whole = changed.with_inserts(inserts, number)
            assert whole is not None
            row = number + whole.text.count("\n") - text.count("\n") if inserts else number
            if edit != LineEdit(every_10):  # a line within its new block has the same loop
                assert whole.edited(edit, row) is None
    assert changes


def test_a_call_keeps_its_form() -> None:
    """A comma at the end, an argument a line, a comment: all stay."""
    edit = CallEdit(("f",), set=(("b", "2"),), drop=("c",))
    for before, after in (
        ("f()", "f(b=2)"),
        ("f(a,)", "f(a, b=2,)"),
        ("f(c=1)", "f(b=2)"),
        ("f(c=1, d=3)", "f(d=3, b=2)"),
        ("f(\n    a,  # x\n    c=1,\n)", "f(\n    a,  # x\n    b=2,\n)"),
        ("f(\n    a,\n    d=1,\n    c=1,\n)", "f(\n    a,\n    d=1,\n    b=2,\n)"),
        ("f(\n    a  # x\n)", "f(\n    a,  # x\n    b=2\n)"),
        ("f(*a, **o)", ""),
        ("f(b=1, **o)", "f(b=2, **o)"),
    ):
        assert new(before, edit=edit) == after


def test_what_a_line_says_is_what_is_built() -> None:
    """The words and the edit are of one tree."""
    for line, kept in (
        ("total += float(a + b) * len(x)", "total = total + (a + b).detach() * len(x)"),
        ("total += a.item() - b.item()", "total = total + (a.detach() - b.detach())"),
        (
            "total += (\n    a.item()\n    - b.item()  # less\n)",
            "total = total + (\n    a.detach()\n    - b.detach()  # less\n)",
        ),
        ('sums["a"] += a.item()', 'sums["a"] = sums["a"] + a.detach()'),
        ("found += [a.item()]", "found += [a.detach()]"),
    ):
        assert UserLine.of(line).without_read == new(line, edit=LineEdit(without_read)) == kept


def test_no_rule_is_named_outside_of_the_rules() -> None:
    """What treats a rule in its own way goes by its fields. Ids stand where rules, faults and their calls lie."""
    examples = {
        "commands/_explain.py": {"MPS201"},  # `anymps explain MPS201`
        "commands/_help.py": {"MPS201"},  # the same, as an example
        "findings/_comments.py": {"MPS201"},  # `# anymps: ignore[MPS201] reason`
        "findings/_settings.py": {"MPS201"},  # `disable = ["MPS201"]`
        "findings/advice/_optimizers.py": {"MPS305", "MPS691"},  # sentences refer to their pages
        "report/run/_waits.py": {"MPS701", "MPS702"},
        "upgrade/_calls.py": {"MPS604"},
    }
    for path in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.cpp"), *SOURCE.rglob("*.h"), *SOURCE.rglob("*.html")]:
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(("findings/rules/", "rules/faults/", "verify/cases/_faults.py")):
            found = set(re.findall(r"MPS\d{1,3}\b", path.read_text(encoding="utf-8")))
            assert found <= examples.get(name, set()), f"{name} names {found}"


SEEDS = """\
import torch


def set_seed(seed):
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    torch.cuda.manual_seed(seed + 1)
"""


@pytest.mark.parametrize(
    ("line", "changed"),
    [(6, None), (7, None), (8, "    torch.manual_seed(seed + 1)\n")],
    ids=["test", "same", "another"],
)
def test_seeds_of_a_file(line: int, changed: str | None) -> None:
    """A seed that every device has already is left alone, and so is the test that stands before it alone."""
    edited = Script(Path("train.py"), SEEDS, "utf-8").edited(LineEdit(portable), line)
    assert (edited and edited[0].text) == (changed and SEEDS.replace("    torch.cuda.manual_seed(seed + 1)\n", changed))


@pytest.mark.parametrize(
    ("head", "margin", "step"),
    [
        ("import torch", "", "    "),
        ("import torch|if torch:", "    ", "    "),
        ("import torch|if torch:|\tif torch:", "\t\t", "\t"),
    ],
    ids=["none", "spaces", "tabs"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_statement_in_two_branches(head: str, margin: str, step: str, end: str) -> None:
    """What nothing takes the value of becomes an `if` in the margin, the steps and the line endings of its file."""
    rows = head.split("|")
    text = end.join([*rows, f"{margin}torch.cuda.empty_cache()  # free", ""])
    edited = Script(Path("train.py"), text, "utf-8").edited(LineEdit(portable), len(rows) + 1)
    assert edited is not None
    lines = (f"if {MPS}:", f"{step}torch.mps.empty_cache()", "else:", f"{step}torch.cuda.empty_cache()  # free")
    assert edited[0].text == end.join([*rows, *(f"{margin}{line}" for line in lines), ""])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("f(1)", "f(1)"),
        (
            "d = torch.device(\n    'cuda'  # the card\n    if y\n    else 'cpu',\n)",
            "d = torch.device('cuda' if y else 'cpu')",
        ),
        ("x = a + \\\n    b", "x = a + b"),
        ("x = {\r\n  'a': f'b{c}',\r\n}", "x = {'a': f'b{c}'}"),
        ("f(', )',\n  2,)", "f(', )', 2,)"),
        ("t = (\n    1,\n)", "t = (1,)"),
        ("if (a and\n        b):", "if (a and b):"),
        ("f('''a\nb''',\n  2)", ""),
        ("if a:\n    b\nelse:\n    c", ""),
        ("f(\n" + "    123_456,\n" * 30 + ")", ""),
    ],
)
def test_code_in_one_line(text: str, line: str) -> None:
    """As a sentence shows a statement over several lines: without its comments, and only where it means the same."""
    assert CodeChange("a.py", 1, 1, "x", text).code == line
