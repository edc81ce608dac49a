"""MPS409: the lines that ask for CUDA. One that must change is a finding, those that use its device stand beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from anymps.findings import RULES, Finding, Severity, find
from anymps.fix import Edit, Program, edits_for
from anymps.fix._edits import apply_all
from anymps.record import RecordingBuilder, Site

MPS = "torch.backends.mps.is_available()"
KEPT = "Other machines behave as before; the lines that use the device can stay."


def answered(text: str, lines: Sequence[int]) -> list[Finding]:
    """The findings of a run in which these lines of a script asked for CUDA and were answered."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0"})
    for line in lines:
        source = text.splitlines()[line - 1].strip()
        site = builder.site("train.py", line, "<module>", source, text=text)
        builder.note("cuda_answered", start_ns=line, site=site)
    return [finding for finding in find(builder.close()) if finding.id == "MPS409"]


def labels(edits: Sequence[Edit]) -> list[str]:
    return [f"{edit.finding.id} at {edit.file.name}:{edit.line}" for edit in edits]


def test_the_line_that_chose_is_the_finding() -> None:
    """Its users stand beside it, and are none of their own; a line is told once."""
    text = (
        'import torch\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        "model = net().to(device)\nx = x.to(device)\n"
    )
    (finding,) = answered(text, [2, 3, 4, 2])
    assert (finding.site.line, finding.count, finding.related_as) == (2, 4, "used at")
    assert [site.line for site in finding.related_sites] == [3, 4]
    assert finding.what == "This line asks for CUDA, and mps answered. 2 other lines use its device."
    assert finding.why.endswith("Without it the script chooses the CPU.")
    assert finding.fix == (
        f'Write `device = torch.device("mps" if {MPS} else "cuda" if torch.cuda.is_available() else "cpu")`. {KEPT}'
    )


def test_a_type_of_tensors_under_a_name() -> None:
    """The line that names it, which has the type, and not the one that only calls the name."""
    text = "import torch\nTensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor\nx = Tensor(3, 1).fill_(1.0)\n"
    (finding,) = answered(text, [3, 3])
    assert (finding.site.line, finding.site.source, finding.count) == (2, text.splitlines()[1], 2)
    assert finding.what == (
        "This line names a type of CUDA's tensors, which mps has none of; 1 line uses it, and mps answered."
    )
    assert finding.fix == (
        "Create it with a function that takes a device: `torch.empty(size, dtype=..., device=device)`, or "
        "`torch.tensor(...)` for values. mps has no float64."
    )


def test_a_choice_over_several_lines_is_one_finding() -> None:
    """Two of its lines were answered; the new code stands in one line, with the index of the GPU."""
    text = (
        "import torch\nd = torch.device(\n    'cuda:1'  # the free one\n    if torch.cuda.is_available()\n"
        "    else 'cpu',\n)\nx = x.to(d)\n"
    )
    (finding,) = answered(text, [2, 4, 4, 7])
    assert (finding.site.line, finding.count, [site.line for site in finding.related_sites]) == (2, 4, [7])
    assert finding.change is not None and finding.change.new.count("\n") == 4
    assert finding.fix == (
        f"Write `d = torch.device('mps' if {MPS} else 'cuda:1' if torch.cuda.is_available() else 'cpu')`. {KEPT}"
    )


def test_a_device_as_text_is_found_in_what_is_recorded() -> None:
    """Nothing of torch ran at its line: it is read off the lines around those that use it."""
    text = 'import torch\nargs.device = "cuda"\nmodel = net().to(args.device)\nx = x.to(args.device)\n'
    (finding,) = answered(text, [3, 4])
    assert (finding.site.line, [site.line for site in finding.related_sites]) == (2, [3, 4])
    assert finding.what == "This line names CUDA as the device; 2 lines use it, and mps answered."
    assert finding.fix == f'Write `args.device = "mps" if {MPS} else "cuda"`. {KEPT}'


def test_a_device_that_is_chosen_elsewhere() -> None:
    """One finding, with the words where to look; no code."""
    (finding,) = answered("x = x.to(args.device)\ny = y.to(args.device)\n", [1, 2])
    assert (finding.count, finding.change, [site.line for site in finding.related_sites]) == (2, None, [2])
    assert finding.what == "2 lines use a device that was chosen elsewhere as CUDA, and mps answered."
    assert finding.fix == (
        "Prefer mps where the device is chosen, such as in an option's default. What uses the device can stay."
    )


def test_a_question_of_torchs_own_is_no_finding() -> None:
    """`nn.DataParallel(model)` asks for CUDA itself, and does on a Mac what it does on a CPU."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0"})
    via = "torch/nn/parallel/data_parallel.py:__init__"
    site = builder.site("train.py", 3, "<module>", "net = nn.DataParallel(net)", via=via)
    builder.note("cuda_answered", start_ns=1, site=site)
    assert [finding for finding in find(builder.close()) if finding.id == "MPS409"] == []


def test_a_portable_script_is_no_finding() -> None:
    """It asks for mps itself, after CUDA: without `--cuda-as-mps` it gets mps."""
    text = (
        'import torch\nd = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else 0\n'
        "x = x.to(d)\n"
    )
    assert answered(text, [2, 3]) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('@torch.autocast("cuda", enabled=False)',
         "Only `--cuda-as-mps` makes it act on mps. Without it, this does nothing on a Mac."),
        ("torch.cuda.manual_seed(1)",
         "Only `--cuda-as-mps` makes it act on mps. Without it, this does nothing on a Mac."),
        ("use = torch.cuda.is_available()",
         "Only `--cuda-as-mps` lets this line use the Mac's GPU. Without it the answer is no or 0, and the script does "
         "what it does on a CPU."),
        ("print(torch.cuda.current_device(), torch.cuda.device_count())",
         "Only `--cuda-as-mps` lets this line use the Mac's GPU. Without it the line raises."),
        ('d = torch.device("cuda" if args.cuda else "cpu")',
         "Only `--cuda-as-mps` lets this line use the Mac's GPU. Without it the script chooses the CPU, or stops where "
         "it uses this device."),
        ('d = torch.device("cuda:{}".format(args.gpu))',
         "Only `--cuda-as-mps` lets this line use the Mac's GPU. Without it the script stops where it uses this "
         "device."),
        ('x = torch.ones(3, device="cuda")',
         "Only `--cuda-as-mps` lets this line use the Mac's GPU. Without it the line raises."),
    ],
)  # fmt: skip
def test_what_a_line_does_on_a_mac_as_it_stands(line: str, why: str) -> None:
    """Each kind of line has its own reason."""
    (finding,) = answered(f"import torch\n{line}\ndef f(): pass\n", [2])
    assert finding.why == why


def test_a_line_under_a_test_raises_only_if_it_is_reached() -> None:
    """`if args.cuda:` may keep a Mac from it; a seed that does nothing there is a note."""
    text = "import torch\nif args.cuda:\n    x = x.cuda()\n    torch.cuda.manual_seed(1)\n"
    moved, seeds = answered(text, [3, 4])
    assert moved.why == (
        "Only `--cuda-as-mps` lets this line use the Mac's GPU. Without it the line raises, if the script reaches it."
    )
    assert (moved.severity, seeds.severity) == (Severity.WARNING, Severity.INFO)


def test_the_device_of_a_file_is_told_once() -> None:
    """Of several `.cuda()` the first says how `device` is made, the others that it is that one."""
    text = "import torch\nx = x.cuda()\ny = y.cuda()\n"
    first, second = sorted(answered(text, [3, 2]), key=lambda finding: finding.site.line)
    made = (
        'device = torch.device("mps" if torch.backends.mps.is_available() else "cuda" if torch.cuda.is_available() '
        'else "cpu")'
    )
    assert first.fix == (
        f"Make `{made}` once, below the imports. Then write `x = x.to(device)`. Other machines behave as before."
    )
    assert second.fix == (
        "Write `y = y.to(device)`, with `device` as made for train.py:2. Other machines behave as before."
    )


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ('d = torch.device("cpu" if not torch.cuda.is_available() else args.device)',
         f'd = torch.device("mps" if {MPS} and str(args.device).startswith("cuda") else "cpu" if not '
         "torch.cuda.is_available() else args.device)"),
        ('device = args.device if torch.cuda.is_available() else "cpu"',
         f'device = "mps" if {MPS} and str(args.device).startswith("cuda") else args.device if '
         'torch.cuda.is_available() else "cpu"'),
        ('device = dev if torch.cuda.is_available() or force else "cpu"',
         f'device = "mps" if ({MPS} or force) and str(dev).startswith("cuda") else dev if '
         'torch.cuda.is_available() or force else "cpu"'),
        ('n = args.gpu if torch.cuda.is_available() else -1',
         f"n = args.gpu if {MPS} or torch.cuda.is_available() else -1"),
    ],
)  # fmt: skip
def test_a_device_that_an_option_names(line: str, new: str) -> None:
    """Its default is CUDA's: an answer of mps alone would ask a Mac for it. `--device cpu` stays what it is."""
    (finding,) = answered(f"import torch\n{line}\n", [2])
    assert finding.change is not None and finding.change.new == new


def test_a_move_in_a_file_whose_torch_is_not_known() -> None:
    """No code can be built; the words are about the move."""
    (finding,) = answered("model.cuda()\n", [1])
    assert finding.fix == (
        "Write `.to(device)` for `.cuda()`, with a `device` that is chosen once: mps where there is one, else CUDA."
    )


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("scaler = GradScaler(enabled=fp16)",
         'scaler = torch.amp.GradScaler("mps" if torch.backends.mps.is_available() else "cuda", enabled=fp16)'),
        ("with autocast(True):",
         'with torch.autocast("mps" if torch.backends.mps.is_available() else "cuda", enabled=True):'),
        ("with torch.cuda.device(args.gpu):",
         "with torch.cuda.device(args.gpu if torch.cuda.is_available() else -1):"),
    ],
)  # fmt: skip
def test_a_line_that_asks_without_naming_cuda(line: str, new: str) -> None:
    """`autocast()` and `GradScaler()` without a device are those of `torch.cuda.amp`, and use no other line's."""
    filler = "\n" * 8
    text = f"from torch.cuda.amp import GradScaler, autocast{filler}x = torch.ones(3)\n{line}\n    pass\n"
    text = text if line.endswith(":") else text.replace("    pass\n", "")
    (finding,) = answered(f'{text}{filler}d = torch.device("cuda")\n', [10])
    assert finding.what == "This line asks for CUDA, and mps answered."
    assert finding.change is not None and finding.change.new == new


PROJECT = {
    "train.py": 'import torch\nfrom net import Net\n\nmodel = Net().to("cuda")\n',
    "net.py": 'import torch\n\n\nclass Net:\n    def __init__(self, device="cuda"):\n        self.device = device\n',
    "config.py": 'import dataclasses\n\nimport torch\n\n\n@dataclasses.dataclass\nclass C:\n    device: str = "cuda"\n',
    "tool.py": 'import torch\n\n\ndef main():\n    device = "cuda"\n    if device == "cuda":\n        torch.ones(1)\n',
    "plain.py": 'device = "cuda"\n',
}


def test_every_device_of_a_project(tmp_path: Path) -> None:
    """Also in a module that the source does not name; not where torch has no name, and not in another script."""
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    main = tmp_path / "train.py"
    program = Program.read(main)
    lines = [(main, 4, "<module>"), (tmp_path / "net.py", 6, "__init__")]
    found = [
        RULES["MPS409"].finding(
            Site(str(path), line, function, path.read_text().splitlines()[line - 1].strip()), what="It.", count=1
        )
        for path, line, function in lines
    ]
    loaded = [str(tmp_path / name) for name in ("net.py", "config.py", "plain.py")]
    edits, suggestions = edits_for(found, program, loaded)
    assert labels(edits) == ["MPS409 at train.py:4", "MPS409 at net.py:5", "MPS409 at config.py:8"]
    (suggestion,) = suggestions
    assert suggestion.why == "its device is chosen at train.py:4, net.py:5 and config.py:8"
    assert edits[-1].finding.fix == f'Write `device: str = "mps" if {MPS} else "cuda"`.'
    changed = {new.path.name: new.text for _, new in apply_all(edits, program).differences()}
    assert changed == {
        "train.py": PROJECT["train.py"].replace('"cuda"', f'"mps" if {MPS} else "cuda"'),
        "net.py": PROJECT["net.py"].replace('"cuda"', f'"mps" if {MPS} else "cuda"'),
        "config.py": PROJECT["config.py"].replace('"cuda"', f'"mps" if {MPS} else "cuda"'),
    }


def test_a_line_that_asks_for_cuda_is_told_beside_the_choice(tmp_path: Path) -> None:
    """One that only uses the device names the choice; one that no edit is known for still raises on a Mac."""
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\n\ndevice = torch.device('cuda')\nmodel = Net().to(device)\nprint(torch.cuda.memory_summary())\n"
    )
    program = Program.read(path)
    lines = path.read_text().splitlines()
    found = [
        RULES["MPS409"].finding(Site(str(path), line, "<module>", lines[line - 1]), what="It.", count=1)
        for line in (4, 5)
    ]
    edits, suggestions = edits_for(found, program)
    assert labels(edits) == ["MPS409 at train.py:3"]
    assert [(suggestion.finding.site.line, suggestion.why) for suggestion in suggestions] == [
        (4, "its device is chosen at train.py:3"),
        (5, "no safe edit of this line is known"),
    ]


def test_what_asks_for_cuda_where_the_run_did_not_come(tmp_path: Path) -> None:
    """In the modules that the script imported; in other files of the project only devices that are named."""
    asks = "import torch\n\n\ndef test(x):\n    return x.cuda()\n"
    for name in ("net.py", "other.py"):
        (tmp_path / name).write_text(asks)
    path = tmp_path / "train.py"
    path.write_text("import torch\nimport net\n\nx = torch.ones(2).cuda()\ny = []\nif x.sum() > 9:\n    x = x.cuda()\n")
    found = RULES["MPS409"].finding(Site(str(path), 4, "<module>", "x = torch.ones(2).cuda()"), what="It.", count=1)
    edits, suggestions = edits_for([found], Program.read(path), [str(tmp_path / "net.py")])
    # The check tells whether the run came to the first two.
    assert labels(edits) == ["MPS409 at train.py:7", "MPS409 at train.py:4", "MPS409 at net.py:5"]
    assert (edits[0].finding.what, suggestions) == ("This line asks for CUDA.", [])


@pytest.mark.parametrize(
    ("before", "line", "fix"),
    [
        ("", "torch.cuda.manual_seed_all(seed)", "Write `torch.manual_seed(seed)`, which seeds every device."),
        ("torch.manual_seed(seed)", "torch.cuda.manual_seed_all(seed)",
         "Leave or delete it: `torch.manual_seed` has the same seed, and seeds mps and CUDA, too."),
        ("torch.manual_seed(seed)", "if torch.cuda.is_available():\n    torch.cuda.manual_seed_all(seed)",
         "Leave it: below it, CUDA gets the seed of `torch.manual_seed`, which seeds mps, too."),
        ("", "torch.cuda.empty_cache()", "Where mps is available, call `torch.mps.empty_cache()` instead."),
        ("", "torch.cuda.reset_peak_memory_stats()",
         "Where mps is available, call `torch.accelerator.reset_peak_memory_stats()` instead."),
    ],
)  # fmt: skip
def test_what_to_do_about_a_statement_by_itself(before: str, line: str, fix: str) -> None:
    """No fix is a conditional expression whose value nothing takes."""
    (finding,) = answered(f"import torch\n{before}\n{line}\n", [3])
    assert finding.fix == fix
