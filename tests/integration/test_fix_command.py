"""`anymps fix` on real scripts: the patch, the proof, what it writes and what it leaves alone."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from anymps._cache import cache_home
from processes import Result, run_command

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRAIN = """
import numpy as np
import torch
from torch import nn

torch.manual_seed(3)
device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(30)], nn.Linear(16, 4)).to(device)
weight = torch.from_numpy(np.linspace(0.5, 1.0, 4)).to(device)  # per class
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
total = 0.0
for step in range(6):
    x = torch.randn(8, 16, device=device)
    loss = nn.functional.cross_entropy(model(x), torch.arange(8, device=device) % 4, weight=weight)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
print(f"mean loss {total / 6:.4f}")
torch.save(model.state_dict(), "model.pt")
""".lstrip()

MODULES = {
    "train.py": """
import torch
from parts.net import net, optimizer_of
from parts.data import Numbers, collate

if __name__ == "__main__":
    model = net().to("mps")
    optimizer = optimizer_of(model)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=1, collate_fn=collate)
    for x in loader:
        loss = model(x.to("mps")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.4f}")
""",
    "parts/__init__.py": "",
    "parts/net.py": """
import torch


def net():
    return torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(30)])


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)  # the usual one
""",
    "parts/data.py": """
import numpy as np
import torch


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        return np.linspace(0.0, i, 16)


def collate(items):
    batch = torch.stack([torch.from_numpy(x) for x in items])
    return batch
""",
}

CUDA = """
import torch

model = torch.nn.Linear(4, 2).cuda()
x = torch.ones(3, 4).cuda()
print(model(x).shape, torch.cuda.is_available())
""".lstrip()


WORKERS = """
import torch

loader = torch.utils.data.DataLoader(torch.arange(12.0), batch_size=4, num_workers=1)


def train():
    for x in loader:
        print(x.to("mps").sum().item())


train()
print("done")
""".lstrip()


OPTIONS = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
model = torch.nn.Linear(16, 4).to(device)
print(model(torch.ones(2, 16).to(device)).shape)
""".lstrip()

FOLDERS = """
import os
import torch

os.makedirs("runs/one", exist_ok=True)


def main():
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(30)]).to("mps")
    optimizer = torch.optim.AdamW(model.parameters())
    for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(16, 4)), 4, num_workers=1):
        loss = model(x.to("mps")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise ValueError(f"no more data in {os.getpid()}")


if __name__ == "__main__":
    main()
""".lstrip()

DEAD_WORKER = """
import torch

if __name__ != "__main__":
    {}["missing"]


def main():
    for x in torch.utils.data.DataLoader(torch.arange(12.0), batch_size=4, num_workers=1):
        print(x.to("mps").sum().item())


if __name__ == "__main__":
    main()
""".lstrip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder under version control, with the two scripts as HEAD has them."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "port.py").write_text(CUDA)
    commit(tmp_path)
    return tmp_path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a script and its modules, one of which a worker runs."""
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.lstrip())
    commit(tmp_path)
    return tmp_path


def commit(folder: Path) -> None:
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def fix(folder: Path, *words: str) -> Result:
    return run_command("-m", "anymps", "fix", "--mac", "M2 16GB", "--runs", "50", *words, cwd=folder)


def runs_of(result: Result) -> list[str]:
    """What each run was for, without how long it may take."""
    return [re.sub(r", about \d+ s", "", line) for line in result.err.splitlines() if line.startswith("anymps: run ")]


def test_what_is_proved_is_a_patch(folder: Path) -> None:
    """An error first, and then what it had hidden. Nothing is written, also by the script."""
    result = fix(folder, "train.py")
    assert result.status == 0, result.err
    changed = [line for line in result.out.splitlines() if line.startswith(("-", "+"))]
    assert changed == [
        "--- a/train.py",
        "+++ b/train.py",
        "-weight = torch.from_numpy(np.linspace(0.5, 1.0, 4)).to(device)  # per class",
        "-optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
        "+weight = torch.from_numpy(np.linspace(0.5, 1.0, 4, dtype=np.float32)).to(device)  # per class",
        "+optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)",
        "-    total += loss.item()",
        "+    total += loss.detach()",
    ]
    assert "anymps: 3 changes proven: MPS301 in line 8, MPS812 in line 9, MPS201 in line 17" in result.err
    assert "  before, the script stopped at train.py:8: TypeError: Cannot convert a MPS Tensor to float64" in result.err
    assert (folder / "train.py").read_text() == TRAIN
    assert not (folder / "model.pt").exists()
    applied = subprocess.run(["git", "apply", "--check"], input=result.out, cwd=folder, text=True, check=False)
    assert applied.returncode == 0


def test_a_script_for_cuda_is_written(folder: Path) -> None:
    """With --write over a file that git has; a second time it differs from HEAD."""
    result = fix(folder, "--cuda-as-mps", "--write", "port.py")
    assert result.status == 0, result.err
    device = '"mps" if torch.backends.mps.is_available() else "cuda" if torch.cuda.is_available() else "cpu"'
    assert (folder / "port.py").read_text() == textwrap.dedent(f"""
        import torch

        device = torch.device({device})

        model = torch.nn.Linear(4, 2).to(device)
        x = torch.ones(3, 4).to(device)
        print(model(x).shape, torch.backends.mps.is_available() or torch.cuda.is_available())
    """).lstrip()
    assert result.err.splitlines()[-2:] == [
        "anymps: the changed script runs on mps without --cuda-as-mps",
        "anymps: port.py is written",
    ]
    again = fix(folder, "--cuda-as-mps", "--write", "port.py")
    line = "anymps: port.py is not written: it differs from HEAD; commit it first (--force writes it)"
    assert (again.status, again.err.splitlines()) == (2, [line])


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("x = (", (), "anymps: bad.py, line 1, is not valid Python: '(' was never closed"),
        ("x = 1", ("--write",), "anymps: bad.py is not written: it is not under version control (--force writes it)"),
    ],
)
def test_bad_input(folder: Path, text: str, words: tuple[str, ...], line: str) -> None:
    """One line and nothing changed."""
    (folder / "bad.py").write_text(text)
    result = fix(folder, *words, "bad.py")
    assert (result.status, result.err.splitlines()) == (2, [line])
    assert (folder / "bad.py").read_text() == text


def test_no_such_script(folder: Path) -> None:
    """One line."""
    result = fix(folder, "nowhere.py")
    assert (result.status, result.err.splitlines()) == (2, ["anymps: there is no script nowhere.py"])


def test_modules_of_the_project_are_mended(project: Path) -> None:
    """One patch over the script and a module of its package."""
    result = fix(project, "--write", "train.py")
    assert result.status == 0, result.err
    changed = [line for line in result.out.splitlines() if line.startswith(("-", "+"))]
    assert changed == [
        "--- a/train.py",
        "+++ b/train.py",
        '-        loss = model(x.to("mps")).square().mean()',
        '+        loss = model(x.float().to("mps")).square().mean()',
        "--- a/parts/net.py",
        "+++ b/parts/net.py",
        "-    return torch.optim.AdamW(model.parameters(), lr=1e-3)  # the usual one",
        "+    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)  # the usual one",
    ], result.err
    assert result.err.splitlines()[-2:] == ["anymps: train.py is written", "anymps: parts/net.py is written"]
    reverted = subprocess.run(["git", "apply", "-R"], input=result.out, cwd=project, text=True, check=False)
    assert reverted.returncode == 0
    assert {name: (project / name).read_text() for name in MODULES} == {k: v.lstrip() for k, v in MODULES.items()}


def test_all_files_are_written_or_none(project: Path) -> None:
    """One of them differs from HEAD: the other stays as it is, too."""
    path = project / "parts" / "net.py"
    path.write_text(path.read_text() + "# mine\n")
    result = fix(project, "--write", "train.py")
    line = "anymps: parts/net.py is not written: it differs from HEAD; commit it first (--force writes it)"
    assert (result.status, result.err.splitlines()[-1]) == (2, line)
    status = subprocess.run(["git", "status", "--short"], cwd=project, capture_output=True, text=True, check=True)
    assert status.stdout == " M parts/net.py\n"
    assert path.read_text().endswith("# mine\n")


def test_a_notebook_is_refused(folder: Path) -> None:
    """In one line."""
    (folder / "x.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    result = fix(folder, "x.ipynb")
    line = "x.ipynb is a notebook, and anymps fix works on scripts: convert it with 'jupyter nbconvert --to script'"
    assert (result.status, result.err.splitlines()) == (2, [f"anymps: {line}"])


def test_a_script_that_still_needs_cuda_is_told(folder: Path) -> None:
    """What is left of CUDA in it stops it where nothing answers for that."""
    (folder / "port.py").write_text(
        "import torch\n\nkind = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor\n"
        "model = torch.nn.Linear(4, 2).cuda()\nprint(model(kind(3, 4).fill_(1)).shape)\n"
    )
    result = fix(folder, "--cuda-as-mps", "port.py")
    assert result.status == 0, result.err
    assert "+model = torch.nn.Linear(4, 2).to(device)" in result.out
    stopped, nothing_written = result.err.splitlines()[-2:]
    assert stopped.startswith("anymps: without --cuda-as-mps the changed script stops at port.py:5: "), result.err
    assert nothing_written == (
        "anymps: nothing was changed on disk: save the patch for git apply, or run the same command with --write"
    )


def test_a_long_training_is_proved_by_a_few_steps(folder: Path) -> None:
    """Each run ends after them."""
    (folder / "train.py").write_text(TRAIN.replace("range(6)", "range(10**9)"))
    result = fix(folder, "--steps", "3", "train.py")
    assert result.status == 0, result.err
    assert "anymps: 3 changes proven: MPS301 in line 8, MPS812 in line 9, MPS201 in line 17" in result.err


def test_a_run_that_takes_too_long_is_told(folder: Path) -> None:
    """With what ends it earlier."""
    (folder / "train.py").write_text("import time\n\ntime.sleep(600)\n")
    result = fix(folder, "--seconds", "1", "train.py")
    line = "anymps: the script did not end within 1 s: shorten it, such as with --steps 10, or allow more --seconds"
    assert (result.status, result.err.splitlines()) == (2, ["anymps: run 1 of 3: the unchanged script", line])


def test_a_script_with_workers_is_guarded(folder: Path) -> None:
    """Real processes import it: before, they stop the script; after, it ends."""
    (folder / "port.py").write_text(WORKERS)
    result = fix(folder, "--write", "--force", "port.py")
    assert result.status == 0, result.err
    assert (folder / "port.py").read_text() == WORKERS.replace(
        'train()\nprint("done")', 'if __name__ == "__main__":\n    train()\n    print("done")'
    )
    assert "anymps: 1 change proven: MPS802 in line 11" in result.err.splitlines()
    assert "  before, the script stopped at port.py:7: RuntimeError: DataLoader worker" in result.err


def test_a_read_only_script_is_not_replaced(folder: Path) -> None:
    """Not by --force either: that word is about git. Nothing runs before that is said."""
    path = folder / "port.py"
    path.chmod(0o444)
    before = path.read_text()
    for words in (("--write",), ("--write", "--force")):
        result = fix(folder, "--cuda-as-mps", *words, "port.py")
        line = "anymps: port.py is not written: it is read-only (chmod u+w port.py)"
        assert (result.status, result.err.splitlines(), result.out) == (2, [line], "")
    assert (path.read_text(), path.stat().st_mode & 0o777) == (before, 0o444)


def test_an_option_that_names_a_device_still_counts(folder: Path) -> None:
    """Both scripts are run with it, and the changed one obeys it as before."""
    (folder / "port.py").write_text(OPTIONS)
    result = fix(folder, "--cuda-as-mps", "port.py")
    assert result.status == 0, result.err
    assert runs_of(result) == [
        "anymps: run 1 of 4: the unchanged script",
        "anymps: run 2 of 4: with up to 1 change",
        "anymps: run 3 of 4: the first steps without a GPU, with --no-cuda",
        "anymps: run 4 of 4: without --cuda-as-mps",
    ]
    assert "anymps: 1 change proven: MPS409 in line 7" in result.err.splitlines()
    assert "  with --no-cuda the model is on cpu, as before" in result.err.splitlines()


def test_workers_of_a_script_that_makes_a_folder(folder: Path) -> None:
    """They live, and write nothing; the script's own exception ends it before and after, in another process each."""
    (folder / "port.py").write_text(FOLDERS)
    result = fix(folder, "port.py")
    assert result.status == 0, result.err
    assert "anymps: 1 change proven: MPS812 in line 9" in result.err, result.err
    assert "  before and after, the script stops at port.py:15: ValueError: no more data in " in result.err
    assert not (folder / "runs").exists()


def test_the_traceback_of_a_worker(folder: Path) -> None:
    """The script's own exception says only that it died."""
    (folder / "port.py").write_text(DEAD_WORKER)
    result = fix(folder, "port.py")
    lines = result.err.splitlines()
    at = lines.index("  in a process that it started:")
    assert lines[at - 1].startswith("  the script stops at port.py:8: RuntimeError: DataLoader worker (pid(s) ")
    assert lines[at + 1] == "  Traceback (most recent call last):"
    assert f'    File "{folder / "port.py"}", line 4, in <module>' in lines
    assert "  KeyError: 'missing'" in lines


def test_a_run_that_is_known_is_not_made_again(folder: Path, tmp_path: Path) -> None:
    """That of the last fix, and the findings of the last run, unless a source has changed."""
    environment = {"ANYMPS_CACHE_DIR": os.environ.get("ANYMPS_CACHE_DIR") or str(cache_home())}
    (folder / "port.py").write_text("import torch\n\ntorch.ones(2).to('mps')\n")
    os.utime(folder / "port.py", (1e9, 1e9))
    run = run_command("-m", "anymps", "run", "--mac", "M2 16GB", "port.py", cwd=folder, env=environment)
    assert run.status == 0, run.err
    known = run_command("-m", "anymps", "fix", "--mac", "M2 16GB", "port.py", cwd=folder, env=environment)
    assert known.err.splitlines() == [
        "anymps: reusing the findings of the last anymps run",
        "anymps: nothing can be fixed automatically",
    ]
    (folder / "port.py").write_text("import torch\n\ntorch.ones(3).to('mps')\n")
    for first in (
        "run 1 of 3: the unchanged script",
        "reusing the run of the unchanged script from the last anymps fix",
    ):
        again = run_command("-m", "anymps", "fix", "--mac", "M2 16GB", "port.py", cwd=folder, env=environment)
        assert again.err.splitlines()[0] == f"anymps: {first}"


def test_a_proof_holds_no_memory(folder: Path) -> None:
    """Its runs keep no loss on the device, so the peak is that of the script's own run."""
    text = """
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 3), torch.nn.Flatten(), torch.nn.Linear(10816, 4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(torch.randn(32, 1, 28, 28).to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    (folder / "train.py").write_text(text, encoding="utf-8")
    shown = run_command("-m", "anymps", "run", "--mac", "M2 16GB", "--cuda-as-mps", "train.py", cwd=folder)
    result = fix(folder, "--cuda-as-mps", "train.py")
    (peak,) = re.findall(r"Memory: ([\d.]+ MiB) of", shown.err)
    (row,) = re.findall(r"peak memory +(\S+ MiB) +(\S+ MiB)", result.err)
    assert row == (peak, peak)


def test_the_mac_of_the_projects_settings(folder: Path) -> None:
    """It is the Mac where neither an option nor the environment names one, and may be misspelt."""
    script = "import torch\n\ntorch.ones(2).to('mps')\n"
    (folder / "port.py").write_text(script + "raise ValueError(f'{torch.mps.recommended_max_memory() >> 30} GiB')\n")
    (folder / "pyproject.toml").write_text('[tool.anymps]\nmac = "M1 8GB"\n')
    for words, size in (((), 5), (("--mac", "M2 16GB"), 11)):
        result = run_command("-m", "anymps", "fix", *words, "port.py", cwd=folder)
        assert f"  the script stops at port.py:4: ValueError: {size} GiB" in result.err.splitlines(), result.err
    (folder / "pyproject.toml").write_text('[tool.anymps]\nmac = "M7 8GB"\n')
    result = run_command("-m", "anymps", "fix", "port.py", cwd=folder)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert result.err.startswith(f"anymps: {folder}/pyproject.toml: [tool.anymps] mac: ")


def test_the_native_core_is_built_before_the_runs(folder: Path, tmp_path: Path) -> None:
    """They may write nothing of the user's, and so keep none: a first `anymps fix` would have ended with that."""
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\ncase "$*" in *--version*|*-dump*) exec c++ "$@";; esac\necho no room >&2; exit 1\n')
    compiler.chmod(0o755)
    home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home"), "CXX": str(compiler)}
    result = run_command("-m", "anymps", "fix", "port.py", cwd=folder, env={**home, "ANYMPS_CACHE_DIR": ""})
    assert (result.status, "run 1 of 3" in result.err) == (2, False), result.err
    assert result.err.splitlines()[-1] == "  no room"


def test_lines_to_which_no_run_came(folder: Path) -> None:
    """They are told, and changed with --unproved alone: marked in the patch, which applies, and in the summary."""
    (folder / "port.py").write_text(
        'import sys\nimport torch\n\n\ndef later():\n    device = "cuda"\n    return torch.ones(2, device=device)\n\n\n'
        "model = torch.nn.Linear(4, 2).cuda()\nif len(sys.argv) > 1:\n    later()\n"
    )
    (folder / "other.py").write_text('import torch\n\nDEVICE = "cuda"\n')  # another script of the folder
    told = fix(folder, "--cuda-as-mps", "port.py")
    assert told.status == 0, told.err
    assert "anymps: 1 change proven: MPS409 in line 10" in told.err.splitlines()
    why = "(--unproved changes it anyway)"
    lines = told.err.splitlines()
    assert f"  MPS409  port.py:6  not changed: the run did not reach its line {why}" in lines, told.err
    assert "other.py" not in told.err
    assert ('device = "cuda"' not in told.out, "+model" in told.out) == (True, True)
    made = fix(folder, "--cuda-as-mps", "--unproved", "--write", "--force", "port.py")
    assert made.out.splitlines()[0] == "# not proven, the run did not reach its line: MPS409 in line 6"
    assert "anymps: 1 change not proven: MPS409 in line 6" in made.err.splitlines()
    assert why not in made.err
    written = (folder / "port.py").read_text()
    assert '    device = "mps" if torch.backends.mps.is_available() else "cuda"\n' in written
    assert 'model = torch.nn.Linear(4, 2).to("mps" if torch.backends.mps.is_available() else "cuda")\n' in written
    back = subprocess.run(["git", "apply", "-R"], input=made.out, cwd=folder, text=True, check=False)
    assert back.returncode == 0


def test_a_script_that_stops_once_it_chooses_mps(folder: Path) -> None:
    """What stops it there is mended too, as where it is on mps from the start."""
    (folder / "port.py").write_text(
        "import numpy as np\nimport torch\n\n"
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        "model = torch.nn.Linear(4, 2).to(device)\n"
        "x = torch.from_numpy(np.ones((3, 4)))\n"
        "print(model(x.to(device).float()).shape)\n"
    )
    done = []
    for words in ((), ("--cuda-as-mps",)):
        made = fix(folder, *words, "port.py")
        assert "anymps: 2 changes proven: MPS409 in line 4, MPS301 in line 6" in made.err.splitlines(), made.err
        done.append(made)
    plain, answered = (made.err.splitlines() for made in done)
    assert done[0].out == done[1].out
    at = plain.index("anymps: going on from there, with mps in place of CUDA")
    assert plain[at - 1].startswith(
        "anymps: on mps the script stops at port.py:7: TypeError: Cannot convert a MPS Tensor"
    )
    assert ("anymps: the changed script runs on mps" in plain, "going on" in done[1].err) == (True, False)
    assert "anymps: the changed script runs on mps without --cuda-as-mps" in answered


CHAIN = """
import numpy as np
import torch

mean = torch.from_numpy(np.zeros(4))
std = torch.from_numpy(np.ones(4))
mean = mean.to("mps")
std = std.to("mps")
print(((torch.ones(4, device="mps") - mean) / std).sum().item())
torch.fft.fft(torch.ones(4, dtype=torch.complex128).to("mps"))
""".lstrip()


def test_from_one_line_that_stops_to_the_next(folder: Path) -> None:
    """In one run of the command; the line that stops it in the end is named."""
    (folder / "port.py").write_text(CHAIN)
    result = fix(folder, "port.py")
    assert result.status == 0, result.err
    assert "anymps: 2 changes proven: MPS301 in lines 4 and 5" in result.err.splitlines(), result.err
    lines = result.err.splitlines()
    assert any(line.startswith("  before, the script stopped at port.py:6: TypeError: ") for line in lines), result.err
    assert any(line.startswith("  after, it stops at port.py:9: TypeError: ") for line in lines), result.err
