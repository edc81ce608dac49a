"""What differs in each run of a program makes no two errors, and no two printed lines, different."""

from __future__ import annotations

import pytest

from anymps.fix import comparable, numbers


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "DataLoader worker (pid(s) 28250) exited unexpectedly",
            "DataLoader worker (pid(s) 30047, 30048) exited unexpectedly",
        ),
        ("<Net object at 0x7f3a2c0011d0> is not callable", "<Net object at 0x7fe11a9b2340> is not callable"),
        ("connect to 127.0.0.1:29500 failed", "connect to 127.0.0.1:40123 failed"),
        ("at 12:30:01.5 on 2026-11-23: no data", "at 07:01:59 on 2027-01-02: no data"),
        ("cannot open /tmp/tmpx1_ab/part.bin: gone", "cannot open /tmp/tmpq9zz2/part.bin: gone"),
        (
            "no file '/private/var/folders/x/T/fix-1/a'",
            "no file '/private/var/folders/y/T/fix-2/b'",
        ),
        ("run 123e4567-e89b-12d3-a456-426614174000 failed", "run 00000000-e89b-12d3-a456-426614174999 failed"),
        ("timed out after 30.5 seconds", "timed out after 31 seconds"),
        ("logs/exp2026-12-31T23:59:59.9/log.txt", "logs/exp2027-01-01T00:00:00/log.txt"),
    ],
)
def test_numbers_of_one_run(one: str, other: str) -> None:
    """Process ids, addresses, ports, times, and paths of temporary folders."""
    assert comparable(one) == comparable(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Cannot convert to float64", "Cannot convert to float32"),
        ("'Net' has no attribute 'conv1'", "'Net' has no attribute 'conv2'"),
        ("no file 'data/train.txt'", "no file 'data/test.txt'"),
    ],
)
def test_names_with_digits_stay(one: str, other: str) -> None:
    """They say what went wrong."""
    assert comparable(one) != comparable(other)


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        ("epoch 1 loss 0.25 time 3.2s", (1.0, 0.25)),
        ("| ms/batch  8.2 | loss 5.1 | ppl 3", (5.1, 3.0)),
        ("time: 0.123 (0.11) loss 2.0 (2.1)", (2.0, 2.1)),
        ("took 12 seconds, acc 93.5", (93.5,)),
        ("45.2 samples/sec, 123 it/s", ()),
        ("2026-11-23 12:33:01,250 step 4", (4.0,)),
        ("Epoch [1/5], Loss: 3e-1", (1.0, 5.0, 0.3)),
        ("max memory 573.4 MB, loss 0.25", (0.25,)),
        ("peak 1.5GiB of 16 GB; 2048 bytes; step 4", (4.0,)),
        ("torch.mps.current_allocated_memory(): 123904 acc 0.5", (0.5,)),
        ("memory=0.6 reserved=1.0 allocated: 2", ()),
        ("30 MBConv blocks, 5 b", (30.0, 5.0)),
        ("sum tensor(3.2000, device='mps:0', grad_fn=<MulBackward0>)", (3.2,)),
        ("logs/exp2026-11-28T14:04:11.824735/ 3", (3.0,)),
        ("runs/20261128-140411, 2026-11-28_14-04-11 and 2026-11-28 14:04:11.8 loss 0.5", (0.5,)),
        ("20261128 and 12345678-140411", (20261128.0, 12345678.0, 140411.0)),
    ],
)
def test_times_and_sizes_are_no_results(printed: str, kept: tuple[float, ...]) -> None:
    """What a line itself calls a time, a speed, a date or a size of memory; a device's index says no result either."""
    assert numbers(printed) == kept
