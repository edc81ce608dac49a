"""Rules about CUDA, loaders and timing on hand-made recordings: numbers, words, limits."""

from __future__ import annotations

import pytest

from anymps.findings import find
from anymps.record import Fate, Recording, RecordingBuilder, Wait
from rule_loops import LIBRARY, META, ids, loop, once, only


@pytest.mark.parametrize(("error", "expected"), [("AssertionError", ["MPS407"]), ("", [])])
def test_cuda_asked_for(error: str, expected: list[str]) -> None:
    """MPS407: what asks for CUDA and ends the run; a program that catches the error knows what to do."""
    builder = RecordingBuilder(
        meta={**META, "ending": {"exception": error, "message": "Torch not compiled with CUDA enabled"}}
    )
    builder.note("cuda", start_ns=0, site=builder.site("train.py", 7, "main", "model.cuda()"))
    findings = find(builder.close())
    assert [finding.id for finding in findings] == expected
    if expected:
        assert (
            findings[0].what == "This line needs CUDA and raised AssertionError: Torch not compiled with CUDA enabled"
        )
        assert findings[0].site.line == 7


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (["--device", "cuda:0"], "Start the script with `--device mps` in place of `--device cuda:0`."),
        (["--steps", "3", "--device=cuda"], "Start the script with `--device=mps` in place of `--device=cuda`."),
        (["cuda"], "Start the script with `mps` in place of `cuda`."),
        (
            ["--name", "cudagraphs"],
            "Prefer mps where the device is chosen, and use that device everywhere: `.to(device)`.",
        ),
    ],
)
def test_cuda_asked_for_by_an_option(arguments: list[str], fix: str) -> None:
    """MPS407: where the command line chose the device, so does the fix."""
    ending = {"exception": "AssertionError", "message": "Torch not compiled with CUDA enabled"}
    builder = RecordingBuilder(meta={**META, "arguments": arguments, "ending": ending})
    builder.note("cuda", start_ns=0, site=builder.site("train.py", 7, "main", "model.to(args.device)"))
    assert only(builder.close()).fix == fix


FLASH = "flash_attn has no counterpart on a Mac; use torch.nn.functional.scaled_dot_product_attention"


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ({"status": 0}, []),
        ({"status": 1, "exception": "ValueError", "message": "no such option"}, []),
        ({"status": 1, "exception": "ModuleNotFoundError", "message": f"anymps: {FLASH}"}, ["MPS410"]),
        ({"status": 1, "exception": "RuntimeError", "message": "the model needs flash_attn"}, ["MPS410"]),
    ],
)
def test_a_guarded_import_of_a_cuda_library(ending: dict[str, object], expected: list[str]) -> None:
    """MPS410 is about a refusal that ended the run, not one that the program caught."""
    found = ids(once("cuda_refused", sentence=FLASH, meta={**META, "ending": ending}))
    assert [identity for identity in found if identity == "MPS410"] == expected


def test_a_process_that_a_refusal_ended() -> None:
    """MPS410: of a joined recording, the ending of each process counts."""
    part = {"name": "worker", "begin_ns": 0, "complete": True, "ending": {"status": 1, "message": f"anymps: {FLASH}"}}
    found = ids(once("cuda_refused", sentence=FLASH, meta={**META, "ending": {"status": 0}, "parts": [part]}))
    assert "MPS410" in found


def test_other_devices_without_mps() -> None:
    """MPS821 and MPS822 are silent in a program that computes nothing on mps."""
    builder = RecordingBuilder(meta=META)
    builder.note("autocast", start_ns=0, site=builder.site("a.py", 1), device="cuda", dtype="float16")
    assert ids(builder.close()) == []


# MPS80x


LOADER: dict[str, object] = {
    "workers": 2, "pin_memory": False, "persistent": True, "start_method": "", "guarded": True, "unpicklable": "",
    "on_mps": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "times", "expected"),
    [
        ({}, 5, []),
        ({"pin_memory": True}, 1, ["MPS801"]),
        ({"guarded": False}, 1, ["MPS802"]),
        ({"guarded": None}, 1, []),
        ({"guarded": False, "start_method": "fork"}, 1, []),
        ({"guarded": False, "start_method": "spawn"}, 1, ["MPS802"]),
        ({"guarded": False, "workers": 0}, 1, []),
        ({"unpicklable": "collate_fn"}, 1, ["MPS803"]),
        ({"on_mps": "dataset.tensors[0]"}, 1, ["MPS805"]),
        ({"on_mps": "dataset.tensors[0]", "start_method": "fork"}, 1, ["MPS805"]),
        ({"persistent": False}, 3, ["MPS804"]),
        ({"persistent": False}, 2, []),
        ({"persistent": False, "guarded": False}, 5, ["MPS802"]),  # its workers come to the loader, too
        ({"persistent": False, "workers": 0}, 3, []),
    ],
)
def test_loaders(facts: dict[str, object], times: int, expected: list[str]) -> None:
    """MPS80x: each setting by itself; a script that asks for fork gets no finding about spawning."""
    assert ids(once("loader", times=times, **{**LOADER, **facts})) == expected
    assert ids(once("loader", times=times, file=LIBRARY, **{**LOADER, **facts})) == []


def test_a_loader_is_told_where_it_is_made() -> None:
    """MPS801, MPS803 to MPS805 stand at the line to change; two loops over one loader are one finding."""
    for facts, times in (
        ({"pin_memory": True}, 1), ({"unpicklable": "collate_fn"}, 1), ({"on_mps": "dataset"}, 1),
        ({"persistent": False}, 3),
    ):  # fmt: skip
        builder = RecordingBuilder(meta=META)
        made = builder.site("data.py", 4, "loaders", "return DataLoader(data, **options)")
        for epoch in range(times):
            loop_of = builder.site("train.py", 7, "main", "for x in loader:")
            builder.note("loader", start_ns=epoch, site=loop_of, other=made, **{**LOADER, **facts})
        finding = only(builder.close())
        assert (finding.site.file, finding.site.line) == ("data.py", 4)
    builder = RecordingBuilder(meta=META)
    made = builder.site("data.py", 4, "loaders", "return DataLoader(data, pin_memory=True)")
    for line in (7, 19):
        site = builder.site("train.py", line, "main", "for x in loader:")
        builder.note("loader", start_ns=line, site=site, other=made, **{**LOADER, "pin_memory": True})
    pinned = only(builder.close())
    assert (pinned.count, [site.line for site in pinned.related_sites], pinned.related_as) == (2, [7, 19], "used at")


def test_several_workers() -> None:
    """MPS80x say how many."""
    assert only(once("loader", **{**LOADER, "guarded": False})).what == (
        'A DataLoader with 2 workers, and no `if __name__ == "__main__"` around what runs it.'
    )
    restarted = only(once("loader", times=4, **{**LOADER, "persistent": False}))
    assert (restarted.what, restarted.count) == ("2 workers started 4 times, once an epoch.", 4)


# MPS90x


def timed(
    *between: Wait,
    start: str = "t = time.perf_counter()",
    end: str = "took = time.perf_counter() - t",
    file: str = "b.py",
) -> Recording:
    """Ten equal operators between two clock reads, and one before them; then the waits."""
    builder = RecordingBuilder(meta=META)
    builder.entry("aten::mm", start_ns=0)
    builder.note("clock", start_ns=1, site=builder.site(file, 3, "main", start))
    for number in range(10):
        builder.entry("aten::mm", start_ns=2 + number)
    for number, kind in enumerate(between):
        builder.entry("anymps::synchronize", start_ns=20 + number, fate=Fate.WAIT, wait=kind)
    builder.note("clock", start_ns=30, site=builder.site(file, 9, "main", end))
    return builder.close()


def test_timed_with_a_wait() -> None:
    """MPS901 is silent where anything waited before the second read."""
    assert ids(timed(Wait.SYNCHRONIZE)) == []
    assert ids(timed(Wait.ITEM)) == []


def test_every_step_timed_without_a_wait() -> None:
    """MPS901: the remedy is no wait in each step, which would be another finding."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        builder.note("clock", start_ns=time, site=builder.site("b.py", 3, "main", "start = time.time()"))
        builder.entry("aten::mm", start_ns=time + 1)
        builder.note("clock", start_ns=time + 2, site=builder.site("b.py", 9, "main", "took = time.time() - start"))

    finding = only(loop(extra))
    assert (finding.id, finding.count, finding.fix) == (
        "MPS901",
        10,
        "Time many steps together: one `torch.mps.synchronize()` before the first clock read, one before the last, "
        "none in each step (MPS205). `anymps bench` does it for a script as it is.",
    )


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("start = time.time()", "end = time.time()", ["MPS901"]),
        ("self.start = perf_counter()", "return perf_counter() - self.start", ["MPS901"]),
        ("last = time.time()", "if time.time() - last > 60:", []),
        ("last = time.time()", "while time.time() - last < 60:", []),
        ("row['time'] = time.time()", "row['time'] = time.time()", []),
        ("t = time.time()", "log(step, time.time())", []),
        ("end = time.time()", "data_time.update(time.time() - end)", []),
        ("t = time.time()", "load_seconds += time.time() - t", []),
        ("end = time.time()", "batch_time.update(time.time() - end)", ["MPS901"]),
    ],
)
def test_what_is_a_timing(start: str, end: str, expected: list[str]) -> None:
    """MPS901 wants a difference, or two reads kept under names; time limits and time stamps are none."""
    assert ids(timed(start=start, end=end)) == expected
    assert ids(timed(start=start, end=end, file=LIBRARY)) == []


def test_timeit_without_a_wait() -> None:
    """MPS901: both reads are at the line that calls `timeit`; another line that reads twice is a time stamp."""
    for source, expected in (("print(timeit.timeit(lambda: a @ b))", ["MPS901"]), ("t = clock()", [])):
        builder = RecordingBuilder(meta=META)
        line = builder.site("b.py", 3, "main", source)
        builder.note("clock", start_ns=0, site=line)
        builder.entry("aten::mm", start_ns=1)
        builder.note("clock", start_ns=2, site=line)
        recording = builder.close()
        assert ids(recording) == expected
        for finding in find(recording):
            assert finding.fix == "End the timed code with `torch.mps.synchronize()`, or use `anymps bench`."


def test_most_of_the_work_waited_for() -> None:
    """MPS901: a loop that waits in every step and is timed as a whole leaves its last step pending, which is little."""
    builder = RecordingBuilder(meta=META)
    builder.entry("aten::mm", start_ns=0)
    builder.note("clock", start_ns=1, site=builder.site("b.py", 3, "main", "t = time.time()"))
    for number in range(20):
        builder.entry("aten::mm", start_ns=10 * number + 2)
        if number < 18:
            builder.entry("anymps::synchronize", start_ns=10 * number + 5, fate=Fate.WAIT, wait=Wait.SYNCHRONIZE)
    builder.note("clock", start_ns=500, site=builder.site("b.py", 9, "main", "print(time.time() - t)"))
    assert ids(builder.close()) == []


def test_first_call_timed() -> None:
    """MPS902: more than half of what was timed ran for the first time, once; fills of new tensors do not count."""
    for kinds, expected in ((1, []), (2, ["MPS902"])):
        builder = RecordingBuilder(meta=META)
        builder.note("clock", start_ns=1, site=builder.site("b.py", 3, "main", "t = time.time()"))
        builder.entry("aten::uniform_", start_ns=2)
        for number in range(3):
            builder.entry(f"aten::kind{number % kinds}", start_ns=3 + number)
        builder.entry("anymps::synchronize", start_ns=20, fate=Fate.WAIT, wait=Wait.SYNCHRONIZE)
        builder.note("clock", start_ns=30, site=builder.site("b.py", 9, "main", "took = time.time() - t"))
        recording = builder.close()
        assert ids(recording) == expected
        for finding in find(recording):
            assert finding.what == (
                "2 of the 3 operators on mps since the clock's read at b.py:3 ran for the first time."
            )
