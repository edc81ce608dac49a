"""Options of ours after a script: a mistake in one line, a warning where the script has such an option, and `--`."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps import UsageError
from anymps.commands._script_command import check_placement
from anymps.commands._target import Target

OWN = ("--mac", "--report", "--check-numbers", "-v")


def refusal(option: str, command: str = "run") -> str:
    """What a user reads of an option that the script does not have."""
    return (
        f"{option} comes after train.py, which has no such option: put {option} before train.py, or write "
        f"anymps {command} -- train.py if the script does have it"
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("word", ["--mac", "--report=html=x", "--check-numbers", "-v"])
@pytest.mark.parametrize("text", ["", "# report what a mac does\nreport.mac()", "steps = '--machine'"])
def test_an_option_that_the_script_does_not_have(word: str, text: str, folder: Path) -> None:
    """Words of comments and longer names are no options."""
    (folder / "train.py").write_text(text + "\n# end")
    with pytest.raises(UsageError) as error:
        check_placement("plan", OWN, Target("train.py", ("--lr", "3", word, "value")))
    assert str(error.value) == refusal(word.partition("=")[0], "plan")


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("--mac", "parser.add_argument('--mac')"),
        ("--mac", 'parser.add_argument("-m", "--mac", type=str)'),
        ("--mac", "@dataclass\nclass Config:\n    mac: str"),
        ("--mac", "def main(mac=None): ..."),
        ("--mac=x", "getopt.getopt(argv, '', ['mac='])"),
        ("--check-numbers", "check_numbers: bool = False"),
        ("--check-numbers", "click.option('--check-numbers/--no-check')"),
        ("-v", "parser.add_argument('-v')"),
    ],
)
@pytest.mark.parametrize("file", ["train.py", "options/parser.py"])
def test_an_option_that_the_script_has(
    word: str, text: str, file: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parser may be in a module of the script's."""
    (folder / "train.py").write_text("# a script")
    (folder / "options").mkdir()
    (folder / file).write_text(text)
    check_placement("run", OWN, Target("train.py", (word,)))
    assert capsys.readouterr().err == (
        f"anymps: {word.partition('=')[0]} comes after train.py, so the script gets it. To pass it to anymps, put it "
        "before train.py; to hide this message, write anymps run -- train.py\n"
    )


def test_words_that_are_not_ours(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Options of the script's alone, values, and what cannot be read: nothing is said."""
    (folder / "train.py").write_text("")
    check_placement("run", OWN, Target("train.py", ("--lr", "mac", "-mac", "--ma", "-m")))
    check_placement("run", OWN, Target("nowhere.py", ("--mac",)))
    assert capsys.readouterr().err == ""
