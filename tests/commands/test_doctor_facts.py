"""What `anymps doctor` reads of a machine: variables, and the facts of a Mac."""

from __future__ import annotations

from pathlib import Path

import pytest

from anymps.commands.doctor import _facts
from anymps.commands.doctor._diagnosis import State, diagnose, explained
from anymps.commands.doctor._facts import relevant

HIGH, LOW = "PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_MPS_LOW_WATERMARK_RATIO"
RAISES = "the first allocation raises RuntimeError: "


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({HIGH: "1.8"}, [("out of memory above 1.8 times the recommended working set", False)]),
        ({HIGH: "0"}, [("no upper limit: macOS may run out of memory", False)]),
        ({HIGH: "off"}, [("not a number: C's strtod makes 0 of it, so the limit is off", True)]),
        ({HIGH: ""}, [("not a number: C's strtod makes 0 of it, so the limit is off", True)]),
        ({HIGH: "1.5GB"}, [("out of memory above 1.5 times the recommended working set", False)]),
        ({HIGH: "2.5"}, [(RAISES + "invalid high watermark ratio 2.5", True)]),
        ({HIGH: "-1"}, [(RAISES + "invalid high watermark ratio -1", True)]),
        ({HIGH: "nan"}, [(RAISES + "invalid high watermark ratio nan", True)]),
        # The default low ratio is 1.4, so a smaller high ratio alone is refused.
        ({HIGH: "0.8"}, [(RAISES + f"invalid low watermark ratio 1.4; set {LOW} to 0.8 or less as well", True)]),
        (
            {HIGH: "0.8", LOW: "0.7"},
            [
                ("out of memory above 0.8 times the recommended working set", False),
                ("unused memory is given back above 0.7 times the recommended working set", False),
            ],
        ),
        (
            {HIGH: "0.8", LOW: "0.9"},
            [
                ("out of memory above 0.8 times the recommended working set", False),
                (RAISES + "invalid low watermark ratio 0.9", True),
            ],
        ),
        ({LOW: "1.9"}, [(RAISES + "invalid low watermark ratio 1.9", True)]),
        ({LOW: "0"}, [("no collection before the upper limit", False)]),
        # Without an upper limit the low ratio may go up to 2.
        (
            {HIGH: "0", LOW: "1.9"},
            [
                ("no upper limit: macOS may run out of memory", False),
                ("unused memory is given back above 1.9 times the recommended working set", False),
            ],
        ),
        ({"PYTORCH_ENABLE_MPS_FALLBACK": "0"}, [("", False)]),
        (
            {"PYTORCH_ENABLE_MPS_FALLBACK": "true"},
            [("not a number: std::stoi throws when torch is loaded; use 1 or 0", True)],
        ),
        ({"PYTORCH_MPS_ALLOC_CONF": "x"}, [("no release of torch up to 2.15 reads this variable", True)]),
        ({"MTL_CAPTURE_ENABLED": "1"}, [("", False)]),
    ],
)
def test_environment(environment: dict[str, str], expected: list[tuple[str, bool]]) -> None:
    """Watermarks are explained as the backend reads them; what does not do what it seems to is a warning."""
    notes = list(explained(environment, (2, 13)))
    assert [(note.text, note.wrong) for note in notes] == expected
    assert [(note.name, note.value) for note in notes] == list(environment.items())


def test_which_variables_are_looked_at() -> None:
    """Variables of the backend, of Metal captures and our own are taken, in order of name; others are not."""
    environment = {"PYTORCH_MPS_FAST_MATH": "1", "HOME": "/home/me", "ANYMPS_MAC": "M1 8GB", "MTL_CAPTURE_ENABLED": "1"}
    assert list(relevant(environment)) == ["ANYMPS_MAC", "MTL_CAPTURE_ENABLED", "PYTORCH_MPS_FAST_MATH"]


def test_facts_of_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS is asked through sw_vers and sysctl, with the switch that makes it tell old Pythons the truth."""
    answers = {
        ("sw_vers", "-productVersion"): "15.4",
        ("sysctl", "-n", "sysctl.proc_translated"): "1",
        ("sysctl", "-n", "kern.hv_vmm_present"): "0",
    }
    asked: list[dict[str, str]] = []

    def answer(command: list[str], **environment: str) -> str:
        asked.append(environment)
        return answers[tuple(command)]

    monkeypatch.setattr(_facts, "printed_by", answer)
    assert _facts._mac_facts() == {
        "macos": "15.4",
        "translated": True,
        "virtual_machine": False,
    }
    assert asked[0] == {"SYSTEM_VERSION_COMPAT": "0"}


def test_facts_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Gathering works here, changes nothing, and feeds a diagnosis."""
    torch = pytest.importorskip("torch", reason="compares with the installed torch")
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "cache"))
    facts = _facts.gather()
    assert facts.torch == torch.__version__
    assert facts.cache == str(tmp_path / "cache" / "native")
    assert facts.cache_writable
    assert facts.core_built is False
    assert facts.environment["ANYMPS_CACHE_DIR"] == str(tmp_path / "cache")
    assert list(tmp_path.iterdir()) == []
    assert diagnose(facts).state in State
