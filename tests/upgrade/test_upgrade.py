"""What becomes of a recorded script in other releases and on other systems: cells, changes, advice, every form.

`PYTHONPATH=tests python tests/upgrade/test_upgrade.py` writes the expected outputs anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anymps.mac import parse_mac
from anymps.record import Fate, Flag, Phase, Recording, RecordingBuilder, RefusalKind
from anymps.report import rendered, upgrade_document, upgrade_json
from anymps.rules.faults import all_hazards
from anymps.upgrade import Grid, make_grid
from recordings import META, SCRIPT, refusing
from report.test_report_forms import comparable, validator

EXPECTED = Path(__file__).parents[1] / "data" / "reports"
FAULTS = sorted({hazard.id for hazard in all_hazards()})
STEP = 2_000_000


def training(*, faults: tuple[str, ...] = (), fallback: bool = True, **meta: object) -> Recording:
    """Five steps of a small network that counts with `histc`; line 88 meets known bugs, given by `id operator`."""
    builder = RecordingBuilder(meta={**META, "faults": FAULTS, "fallback": fallback, "core_speed": 1.0, **meta})
    count = builder.site(SCRIPT, 31, "main", "counts = torch.histc(labels, 10)")
    linear = builder.site(SCRIPT, 88, "main", "y = F.linear(x, weight, bias)")
    for step in range(5):
        t = step * STEP
        builder.entry(
            "aten::histc", start_ns=t + 100_000, duration_ns=9_000, phase=Phase.FORWARD, site=count,
            inputs=["int64[4096]"], outputs=["int64[10]"],
        )  # fmt: skip
        for number in range(50):
            for fault in faults:
                builder.entry(
                    f"anymps::hazard.{fault}", start_ns=t + 200_000 + number * 20_000, fate=Fate.MARK, site=linear,
                    phase=Phase.FORWARD, flags=Flag.HAZARD,
                )  # fmt: skip
            builder.entry(
                "aten::linear", start_ns=t + 201_000 + number * 20_000, duration_ns=9_000, phase=Phase.FORWARD,
                site=linear, inputs=["float32[64, 512]", "float32[512, 512]", "float32[512]"],
                outputs=["float32[64, 512]"],
            )  # fmt: skip
        builder.entry("aten::_fused_sgd_", start_ns=t + 1_900_000, phase=Phase.OPTIMIZER, inputs=["float32[512]"])
        builder.end_step(t + STEP)
    return builder.close()


def words(grid: Grid) -> dict[str, list[str]]:
    """The cells by release, in the order of the systems."""
    return {
        ".".join(map(str, release)): [grid.at(release, system).outcome.word for system in grid.systems]
        for release in grid.releases
    }


def text(grid: Grid, form: str = "terminal") -> str:
    """The table in a form."""
    return "".join(rendered(upgrade_document(grid), form))


def sentences(grid: Grid) -> list[str]:
    """What changes in the calls, as JSON has it; not what is predicted."""
    return [
        f"{step['step']}: {change['sentence']}" + (f" ({change['rule']})" if change["rule"] else "")
        for step in json.loads(upgrade_json(grid))["changes"]
        for change in step["changes"]
        if "predicted" not in change["sentence"]
    ]


def test_a_dtype_that_becomes_native() -> None:
    """`histc` of int64 is refused up to 2.12, by the words of the backend; before 2.11 nobody has looked."""
    grid = make_grid(training())
    assert words(grid) == {
        **dict.fromkeys(("2.7", "2.8", "2.9", "2.10"), ["unknown"] * 4),
        **dict.fromkeys(("2.11", "2.12"), ["refused"] * 4),
        **dict.fromkeys(("2.13", "2.14"), ["OK"] * 4),
        "2.15": ["no mps", "OK", "OK", "OK"],
    }
    assert [system.name for system in grid.systems] == ["macOS 14", "macOS 15", "macOS 26", "macOS 27"]
    assert sentences(grid) == [
        "2.10 -> 2.11: `histc` of int64 is refused: \"histogram_mps\" not implemented for 'Long'; before, that is not "
        "known",
        "2.12 -> 2.13: `histc` of int64 becomes native",
        "macOS 14 -> 15, torch 2.15: torch 2.15 needs macOS 15",
    ]


def test_a_known_bug_of_some_releases() -> None:
    """A bug that came with 2.12 and was fixed in 2.14; and one that is only noted, as M1 and M2 have it."""
    grid = make_grid(training(faults=("MPS607 aten::linear", "elsewhere.MPS613@2.14 aten::linear")))
    assert {release: row[2] for release, row in words(grid).items()}["2.13"] == "wrong"
    assert sentences(grid)[1:3] == [
        "2.11 -> 2.12: `linear` is wrong: F.linear with bias: wrong values beyond 65536 batches (MPS607)",
        "2.12 -> 2.13: `histc` of int64 becomes native",
    ]
    assert "2.13 -> 2.14: `linear` is right again (MPS607)" in sentences(grid)
    assert text(grid).splitlines()[0] == "Use torch 2.15 on macOS 26; with 2.13 line 88 is wrong."
    on_m1 = make_grid(
        training(faults=("MPS607 aten::linear", "elsewhere.MPS613@2.14 aten::linear")), parse_mac("M1 8GB")
    )
    assert [on_m1.at((2, minor)).outcome.word for minor in (13, 14, 15)] == ["wrong"] * 3


def test_a_bug_of_some_systems() -> None:
    """A bug that macOS 26.4 does not have splits the column of macOS 26; its end in torch is not known."""
    grid = make_grid(
        training(faults=("elsewhere.MPS615@2.11 aten::mm",)),
        parse_mac("M3 Pro 18GB, macOS 26.2"),
        first=(2, 11),
        last=(2, 12),
    )
    assert [system.name for system in grid.systems] == [
        "macOS 14", "macOS 15", "macOS 26.0 to 26.3", "macOS 26.4+", "macOS 27",
    ]  # fmt: skip
    assert grid.home.name == "macOS 26.0 to 26.3"
    lines = {name: len(grid.at((2, 11), system).lines) for system in grid.systems for name in [system.name]}
    assert lines == {"macOS 14": 1, "macOS 15": 2, "macOS 26.0 to 26.3": 2, "macOS 26.4+": 1, "macOS 27": 1}
    assert "2.11 -> 2.12: whether `mm` is still wrong is not known (MPS615)" in sentences(grid)
    assert "macOS 26.0 to 26.3 -> 26.4+, torch 2.12: whether" not in text(grid)


def test_a_slow_path() -> None:
    """A path of torch 2.10 to 2.13 that takes 1 to 8.5 times as long lengthens the step there, and is a change."""
    grid = make_grid(training(faults=("MPS869 aten::linear",)))
    assert [grid.at((2, minor)).outcome.word for minor in range(10, 16)] == [
        "slower", "refused", "refused", "slower", "OK", "OK",
    ]  # fmt: skip
    assert "2.13 -> 2.14: `linear` is fast again (MPS869)" in sentences(grid)
    quick, slow = (make_grid(training(faults=faults)).times[2, 13] for faults in ((), ("MPS869 aten::linear",)))
    assert slow.low == quick.low
    assert slow.high > quick.high


def test_a_slow_path_by_size() -> None:
    """Products of large tensors in torch 2.8 and 2.9, which no mark tells of, count where they are much of a step."""
    builder = RecordingBuilder(meta={**META, "faults": FAULTS, "core_speed": 1.0})
    line = builder.site(SCRIPT, 12, "main", "x = x * y")
    for step in range(5):
        builder.entry(
            "aten::mul.Tensor", start_ns=step * STEP + 1000, duration_ns=9_000, phase=Phase.FORWARD, site=line,
            inputs=["float32[8192, 8192]"] * 2, outputs=["float32[8192, 8192]"],
        )  # fmt: skip
        builder.end_step((step + 1) * STEP)
    grid = make_grid(builder.close())
    assert [grid.at((2, minor)).outcome.word for minor in (7, 8, 9, 10)] == ["OK", "slower", "slower", "OK"]
    assert grid.times[2, 8].seconds > grid.times[2, 10].seconds


def test_an_operator_without_a_kernel() -> None:
    """With the fallback on, it runs on the CPU; without, the release refuses it. A later release has a kernel."""
    builder = RecordingBuilder(meta={**META, "faults": FAULTS})
    line = builder.site(SCRIPT, 12, "main", "y = torch.heaviside(x, zero)")
    builder.entry("aten::heaviside.out", start_ns=0, fate=Fate.FALLBACK, site=line, inputs=["float32[8]"])
    grid = make_grid(builder.close(), first=(2, 14), last=(2, 15))
    assert words(grid) == {"2.14": ["falls back"] * 4, "2.15": ["no mps", "OK", "OK", "OK"]}
    assert sentences(grid)[0] == "2.14 -> 2.15: `heaviside` becomes native"
    builder = RecordingBuilder(meta={**META, "faults": FAULTS, "fallback": False})
    message = "The operator 'aten::heaviside.out' is not currently implemented for the MPS device."
    builder.refusal(
        RefusalKind.MISSING, "NotImplementedError", message, operator="aten::heaviside.out", start_ns=0,
        site=builder.site(SCRIPT, 12, "main", "y = torch.heaviside(x, zero)"),
    )  # fmt: skip
    grid = make_grid(builder.close(), first=(2, 14), last=(2, 15))
    assert words(grid) == {"2.14": ["refused"] * 4, "2.15": ["no mps", "OK", "OK", "OK"]}


def test_what_every_release_refuses() -> None:
    """float64 is refused everywhere: no release is better, and the advice says so."""
    grid = make_grid(refusing(faults=FAULTS))
    assert {word for row in words(grid).values() for word in row} == {"refused", "no mps"}
    assert text(grid).splitlines()[0] == (
        "No release shown is free of trouble: torch 2.15 on macOS 26 comes closest, where line 14 is refused."
    )


def test_a_recording_of_an_older_anymps() -> None:
    """Where the recording does not say which bugs its calls were looked at for, nothing is claimed."""
    builder = RecordingBuilder(meta=META)
    line = builder.site(SCRIPT, 88, "main", "y = F.linear(x, weight, bias)")
    builder.entry("aten::linear", start_ns=0, site=line, inputs=["float32[8, 8]"])
    grid = make_grid(builder.close())
    assert words(grid)["2.13"] == ["unknown"] * 4
    assert "n older anymps made the recording, which does not look for all known bugs" in upgrade_json(grid)


def test_nothing_ran_on_mps() -> None:
    """Of a run without a call on mps nothing is recommended."""
    said = "Nothing in the recording ran on mps, so no release can be told from another."
    assert text(make_grid(RecordingBuilder(meta={**META, "faults": FAULTS}).close())).splitlines()[0] == said


def test_steps_of_each_release() -> None:
    """The step is predicted for each release that runs the script; a faster one that is worse is named."""
    grid = make_grid(training())
    assert set(grid.times) == {(2, minor) for minor in (7, 8, 9, 10, 13, 14, 15)}
    assert all(time.low < time.seconds < time.high for time in grid.times.values())
    before, after = (grid.times[2, minor].seconds for minor in (9, 10))
    assert "2.9 -> 2.10: a predicted step takes 3 % less: 1.60 ms" in text(grid)
    assert round(100 * (1 - after / before)) == 3


def expected() -> dict[str, str]:
    """The whole outputs by file name; JSON of two releases."""
    recording = training(faults=("MPS607 aten::linear", "elsewhere.MPS615@2.11 aten::mm"))
    grid = make_grid(recording)
    return {
        "upgrade.txt": text(grid),
        "upgrade.markdown": text(grid, "markdown"),
        "upgrade.html": comparable("html", text(grid, "html")),
        "upgrade.json": upgrade_json(make_grid(recording, first=(2, 12), last=(2, 14))),
    }


@pytest.mark.parametrize("name", ["upgrade.txt", "upgrade.markdown", "upgrade.html", "upgrade.json"])
def test_an_upgrade_in_this_form_is_this(name: str) -> None:
    """Every section, whole."""
    assert expected()[name] == (EXPECTED / name).read_text(encoding="utf-8")


def test_json_fits_the_published_schema() -> None:
    """JSON has the fields of docs/schema/upgrade-1.json and no others."""
    for recording in (training(faults=("MPS607 aten::linear",)), refusing(faults=FAULTS)):
        validator("upgrade-1.json").validate(json.loads(upgrade_json(make_grid(recording))))


if __name__ == "__main__":
    for file, content in expected().items():
        (EXPECTED / file).write_text(content, encoding="utf-8")
