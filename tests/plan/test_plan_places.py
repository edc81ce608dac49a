"""The lines to look at where memory grows."""

from __future__ import annotations

from anymps.plan._fixes import _lines_that_keep_memory
from anymps.record import Phase, RecordingBuilder


def kept(*buffers: tuple[int, int, str, int, bool]) -> list[int]:
    """The lines named for buffers of the forward: step, line, module, size, and whether its step frees it."""
    builder = RecordingBuilder()
    for step in range(4):
        for born, line, module, size, freed in buffers:
            if born == step:
                buffer = builder.allocation(
                    size,
                    "aten::add",
                    site=builder.site("train.py", line),
                    module=builder.module(module, "Block") if module else 0,
                    phase=Phase.FORWARD,
                )
                if freed:
                    builder.free(buffer, phase=Phase.BACKWARD)
        builder.end_step(step * 10 + 10)
    return [site.line for site in _lines_that_keep_memory(builder.close().memory_story)]


def test_what_is_left_of_a_module_is_named_by_size() -> None:
    """The largest first; what its step frees, what the last step made, and the first step's are none of them."""
    assert kept(
        (0, 1, "block", 99, False),
        (1, 2, "block", 10, False),
        (1, 3, "block", 30, False),
        (1, 4, "block", 50, True),
        (3, 5, "block", 70, False),
    ) == [3, 2]


def test_a_result_outside_of_modules_is_named_first() -> None:
    """The last one made before the others, each line once, and three at most."""
    assert kept(
        (1, 2, "block", 90, False),
        (1, 3, "block", 80, False),
        (1, 4, "", 1, False),
        (2, 5, "", 1, False),
        (2, 4, "", 1, False),
        (3, 9, "block", 1, True),
    ) == [4, 5, 2]
