"""Random traces of the heap model: every answer is that of a plain second model."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heap_traces import EVERY, GIB, MIB, Run, config, fields
from reference_heap import Buffer, ReferenceHeap, Refusal

SIZES = (1, 8, 9, 256, 1000, 4096, 70_000, 700_000, MIB, MIB + 1, 3 * MIB, 5 * MIB, 9 * MIB, 10 * MIB, 33 * MIB)
LARGE = (64 * MIB, 100 * MIB, 300 * MIB, 511 * MIB, 512 * MIB, 600 * MIB, 1100 * MIB)


def random_trace(seed: int, length: int) -> list[str]:
    """Commands of a random program: it fills and drains in turn, with few sizes or many, rarely a reset or fraction."""
    rng = random.Random(seed)
    palette = (SIZES, (70_000, 3 * MIB, 700_000), SIZES)[seed % 3]
    names: list[str] = []
    lines: list[str] = []
    for step in range(length):
        kind = rng.random()
        if kind < 0.01:
            lines.append("empty")
        elif kind < 0.03:
            lines.append(f"fraction {rng.choice((0, 0.7, 1, 1.5, 2))}")
        elif names and kind < (0.75 if step // 40 % 2 else 0.25):
            lines.append(f"free {names.pop(rng.randrange(len(names)))}")
        else:
            base = rng.choice(palette if rng.random() < 0.9 else LARGE)
            size = base if rng.random() < 0.7 else rng.randint(1, base)
            names.append(f"t{step}")
            lines.append(f"alloc t{step} {size}")
    return [*lines, *(f"free {name}" for name in names), "empty"]


def play(reference: ReferenceHeap, line: str, live: dict[str, Buffer | None]) -> str:
    """The answer that the reference gives to one command, in the harness's form."""
    command, *words = line.split()
    try:
        if command == "alloc":
            live[words[0]] = None
            block = reference.allocate(int(words[1]))
            live[words[0]] = block
            assert block is not None
            return (
                f"block id={block.ident} size={block.size} nbytes={words[1]} heap={block.heap.number} "
                f"heap_size={block.heap.size} offset={block.offset} shared={int(block.heap.pool.shared)}"
            )
        if command == "free":
            block = live.pop(words[0])
            if block is not None:
                reference.release(block)
        elif command == "empty":
            reference.empty_cache()
        else:
            reference.set_memory_fraction(float(words[0]))
    except Refusal as error:
        kind = "InvalidBufferSize" if str(error).startswith("Invalid") else "OutOfMemory"
        return f"error {kind}: {error}"
    return "ok"


SETTINGS: dict[str, dict[str, float]] = {
    "ample": {"recommended": 64 * GIB, "high": 1.7, "low": 1.4},
    "tight": {"recommended": 2 * GIB, "high": 1.7, "low": 1.0},
    "pressure": {"recommended": 700 * MIB, "high": 2.0, "low": 0.3, "baseline": 3 * MIB},
    "no collection": {"recommended": GIB, "high": 1.2, "low": 0},
    "metal refuses": {"recommended": GIB, "high": 0, "low": 1.0, "metal_limit": 1500 * MIB},
    "discrete": {"recommended": GIB, "high": 1.7, "low": 1.0, "unified": 0},
}


CASES = [
    (setting, minor)
    for setting in SETTINGS
    for minor in (7, 11, 12, 13, 14, 15)
    if minor < 13 or setting != "discrete"  # refused from 2.13 on, see above
]


def assert_same(run: Run, minor: int, setting: dict[str, float], trace: list[str]) -> None:
    """Plays a trace in both models and compares every answer and every counter."""
    values: dict[str, float] = {"unified": 1, "baseline": 0, "metal_limit": 0, **setting}
    extra = " ".join(f"{key}={values[key]}" for key in ("unified", "baseline", "metal_limit"))
    recommended, high, low = int(values["recommended"]), values["high"], values["low"]
    head = config(minor, recommended, GIB, high, low, extra)
    answers = run(head, *(each for line in trace for each in (line, "stats")))
    reference = ReferenceHeap(
        minor,
        recommended,
        GIB,
        high,
        low,
        unified=bool(values["unified"]),
        baseline=int(values["baseline"]),
        metal_limit=int(values["metal_limit"]),
    )
    live: dict[str, Buffer | None] = {}
    for step, (line, answer, counts) in enumerate(zip(trace, answers[1::2], answers[2::2], strict=True)):
        where = f"step {step}: {line}"
        assert (where, play(reference, line, live)) == (where, answer)
        stats = fields(counts)
        numbers = (reference.current, reference.total, reference.driver, reference.peak_current, reference.peak_total)
        got = tuple(stats[key] for key in ("current", "total", "driver", "peak_current", "peak_total"))
        assert (where, numbers) == (where, got)


@pytest.mark.parametrize(("setting", "minor"), CASES)
def test_random_traces_match_the_reference(run: Run, setting: str, minor: int) -> None:
    """On random traces every answer and every counter equals that of the plain reference model."""
    for seed in range(3):
        assert_same(run, minor, SETTINGS[setting], random_trace(seed, 250))


@EVERY
def test_many_equal_blocks_match_the_reference(run: Run, minor: int) -> None:
    """With many free blocks of few sizes, taken out in any order, the choices are still those of the reference."""
    rng = random.Random(minor)
    names: list[str] = []
    trace: list[str] = []
    for cycle in range(5):
        for size, count in ((256, 40), (512, 20), (1024, 20), (20_000, 6), (3 * MIB, 12), (5 * MIB, 8)):
            names += [f"t{cycle}_{size}_{i}" for i in range(count)]
            trace += [f"alloc t{cycle}_{size}_{i} {size}" for i in range(count)]
        rng.shuffle(names)
        trace += [f"free {names.pop()}" for _ in range(80)]
    assert_same(run, minor, {"recommended": 400 * MIB, "high": 1, "low": 0.5}, trace)


ALLOCATE = st.tuples(st.just("alloc"), st.sampled_from((*SIZES, *LARGE)) | st.integers(1, 40 * MIB))
FREE = st.tuples(st.just("free"), st.integers(0, 99))
EMPTY = st.just(("empty", 0))


@EVERY
@settings(max_examples=40, derandomize=True, database=None, deadline=None)
@given(commands=st.lists(ALLOCATE | ALLOCATE | FREE | FREE | EMPTY, max_size=60))
def test_any_trace_matches_the_reference(run: Run, minor: int, commands: list[tuple[str, int]]) -> None:
    """The smallest trace on which the two differ is told."""
    names: list[str] = []
    trace: list[str] = []
    for step, (command, number) in enumerate(commands):
        if command == "alloc":
            names.append(f"t{step}")
            trace.append(f"alloc t{step} {number}")
        elif command == "empty":
            trace.append(command)
        elif names:
            trace.append(f"free {names.pop(number % len(names))}")
    trace += [*(f"free {name}" for name in names), "empty"]
    assert_same(run, minor, {"recommended": 3 * GIB, "high": 1.7, "low": 0}, trace)
