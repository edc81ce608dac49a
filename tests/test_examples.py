"""The examples: they learn, they say what is wrong with a data file, and planted mistakes do not show on the CPU."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from planted import EXAMPLES, FOLDER, MISTAKES, QUICK, plant

LABELS = ("needs_docs", "needs_test", "needs_review")

Load = Callable[[str, Path], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Import a script from its path, char_gpt made smaller; digits_cnn is skipped where scikit-learn is missing."""

    def load_script(example: str, path: Path) -> ModuleType:
        if example == "digits_cnn":
            pytest.importorskip("sklearn", reason="examples/digits_cnn.py takes its images from scikit-learn")
        spec = importlib.util.spec_from_file_location(f"example_{example}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        if example == "char_gpt":
            for name, smaller in {"CONTEXT": 32, "LAYERS": 2, "WIDTH": 64, "CHECKS": 10}.items():
                monkeypatch.setattr(module, name, smaller)
        return module

    return load_script


@pytest.fixture(autouse=True)
def leave_torch_as_found() -> Iterator[None]:
    """The examples seed torch's global generator, which is given back as it was; one thread does for them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        yield
    torch.set_num_threads(threads)


def run(module: ModuleType, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run an example on the CPU and give back what it printed."""
    assert module.main(["--device", "cpu", *arguments]) == 0
    return capsys.readouterr().out


# --- they learn ---


def test_issue_classifier_beats_the_majority_on_every_label(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Held-out accuracy and F1 of each label are well above those of always giving the more frequent answer."""
    out = run(load("issue_classifier", FOLDER / "issue_classifier.py"), capsys, "--epochs", "40")
    lines = out.splitlines()
    assert lines[0] == "cpu: 288 training texts, 72 held out, 437 words"
    assert [line.split()[0] for line in lines[-3:]] == list(LABELS)
    for line in lines[-3:]:
        accuracy, f1, base_accuracy, base_f1 = map(float, line.split()[1:])
        assert accuracy > base_accuracy + 0.1
        assert f1 > base_f1 + 0.4


def test_digits_cnn_beats_the_most_frequent_digit(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Held-out accuracy passes 95 % where always naming the most frequent digit gets about a tenth."""
    out = run(load("digits_cnn", FOLDER / "digits_cnn.py"), capsys)
    accuracy, baseline = map(float, re.findall(r"\d\.\d{3}", out.splitlines()[-1]))
    assert accuracy > 0.95
    assert baseline < 0.15


def test_char_gpt_beats_the_character_frequencies(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """After 100 steps the held-out loss is half a nat a character below the entropy of the training text."""
    out = run(load("char_gpt", FOLDER / "char_gpt.py"), capsys, "--steps", "100")
    loss, entropy = map(float, re.findall(r"\d\.\d{3}", out.splitlines()[-1]))
    assert 3.0 < entropy < 3.5
    assert loss < entropy - 0.5


@pytest.mark.parametrize("example", EXAMPLES)
def test_same_seed_same_output(example: str, load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs on the same device print the same figures, whatever the global generator held before."""
    module = load(example, FOLDER / f"{example}.py")
    torch.manual_seed(1)
    first = run(module, capsys, *QUICK[example])
    torch.manual_seed(2)
    assert first == run(module, capsys, *QUICK[example])


# --- the data and its mistakes ---


COLUMNS = "text, needs_docs, needs_test, needs_review"
HEADER = COLUMNS.replace(" ", "") + "\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ("", f"missing column {COLUMNS}; needed: {COLUMNS}"),
        ("text,needs_docs,needs_test\n", f"missing column needs_review; needed: {COLUMNS}"),
        (HEADER + "fine,0,1,0\nwrong,0,yes,0\n", "line 3: needs_test is 'yes', must be 0 or 1"),
        (HEADER + "short,0,1\n", "line 2: needs_review is '', must be 0 or 1"),
        (HEADER + "fine,0,1,0\n" * 12, "12 rows, at least 50 are needed"),
        (b"\xff", "not a CSV file in UTF-8 ('utf-8' codec can't decode byte 0xff in position 0: invalid start byte)"),
    ],
    ids=["missing file", "empty", "missing column", "label", "short line", "too few rows", "not text"],
)
def test_faulty_csv_is_one_line(
    content: str | bytes | None, message: str, load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that cannot be used ends with exit code 2 and one line that names the file, the place and the rule."""
    path = tmp_path / "mine.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    module = load("issue_classifier", FOLDER / "issue_classifier.py")
    assert module.main(["--device", "cpu", "--data", str(path)]) == 2
    separator = ", " if message.startswith("line") else ": "
    captured = capsys.readouterr()
    assert captured.err == f"issue_classifier: {path}{separator}{message}\n"
    assert captured.out == ""


def test_own_csv_with_byte_order_mark_and_more_columns(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user's file may come from a spreadsheet, order its columns freely and hold others besides."""
    path = tmp_path / "mine.csv"
    rows = [f"{i},{i % 2},0,{(i + 1) % 2},{'explain the guide' if i % 2 else 'please review'}" for i in range(60)]
    header = "id,needs_docs,needs_test,needs_review,text"
    path.write_text("\n".join([header, *rows]), encoding="utf-8-sig")
    out = run(load("issue_classifier", FOLDER / "issue_classifier.py"), capsys, "--data", str(path))
    assert out.splitlines()[0] == "cpu: 48 training texts, 12 held out, 5 words"
    assert [line.split()[1] for line in out.splitlines()[-3:]] == ["1.000", "1.000", "1.000"]


def test_qlora_names_the_library_that_is_missing(
    load: Load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with how to install all that it needs."""
    monkeypatch.setitem(sys.modules, "accelerate", None)
    assert load("qlora_tiny", FOLDER / "qlora_tiny.py").main(["--device", "cpu"]) == 2
    why = "import of accelerate halted; None in sys.modules"
    expected = f"qlora_tiny: {why}; pip install transformers peft accelerate bitsandbytes\n"
    assert capsys.readouterr() == ("", expected)


# --- what is planted against good practice ---


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistake_does_not_show_on_the_cpu(
    mistake: str, load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The planted script trains on the CPU as if nothing were wrong; what costs time alone gives the same figures."""
    planted = plant(mistake)
    path = tmp_path / f"{planted.example}.py"
    path.write_text(planted.source, encoding="utf-8")
    out = run(load(planted.example, path), capsys, *QUICK[planted.example])
    assert "nan" not in out
    if mistake in ("fallback", "wait"):
        plain = run(load(planted.example, FOLDER / f"{planted.example}.py"), capsys, *QUICK[planted.example])
        figures, expected = ([float(n) for n in re.findall(r"\d\.\d{3}", text)] for text in (out, plain))
        assert figures == pytest.approx(expected, abs=0.02)
