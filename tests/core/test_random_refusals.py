"""What random calls on the device refuse, in the words of each release, and what is recorded of them."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch

from random_draws import VERSION, elements, empty, pair, reference_numbers, since_2_12

pytestmark = pytest.mark.usefixtures("random_device")


def on_cpu() -> torch.Generator:
    """A generator that no operator of the device takes."""
    return torch.Generator("cpu")


FOREIGN = "Expected a 'mps' device type for generator but found 'cpu'"


@pytest.mark.parametrize(
    "call",
    [
        lambda g: torch.rand(2, device="mps", generator=g),
        lambda g: torch.randn(2, device="mps", generator=g),
        lambda g: torch.randint(5, (2,), device="mps", generator=g),
        lambda g: empty("float", 2).uniform_(generator=g),
        lambda g: empty("float", 2).normal_(generator=g),
        lambda g: empty("float", 2).exponential_(generator=g),
        lambda g: empty("float", 2).cauchy_(generator=g),
        lambda g: empty("float", 2).log_normal_(generator=g),
        lambda g: empty("float", 2).geometric_(0.5, generator=g),
        lambda g: empty("float", 2).bernoulli_(0.5, generator=g),
        lambda g: empty("float", 2).random_(generator=g),
        lambda g: torch.bernoulli(torch.ones(2, device="mps"), generator=g),
        lambda g: torch.normal(torch.ones(2, device="mps"), 1.0, generator=g),
        lambda g: torch.normal(1.0, torch.ones(2, device="mps"), generator=g),
        lambda g: torch.multinomial(torch.ones(2, device="mps"), 1, generator=g),
        lambda g: torch.multinomial(torch.ones(2, device="mps"), 4, True, generator=g),
        pytest.param(lambda g: torch._standard_gamma(torch.ones(2, device="mps"), generator=g), marks=since_2_12),
    ],
)
def test_a_generator_of_another_device(call: Callable[[torch.Generator], torch.Tensor]) -> None:
    """Every operator refuses a CPU generator with the backend's text."""
    with pytest.raises(RuntimeError) as raised:
        call(on_cpu())
    assert FOREIGN == str(raised.value)


def test_a_generator_of_another_device_for_randperm() -> None:
    """randperm names the index too."""
    with pytest.raises(RuntimeError) as raised:
        torch.randperm(3, device="mps", generator=on_cpu())
    assert str(raised.value) == "Expected a 'mps:0' generator device but found 'cpu'"


def test_a_generator_of_the_device_for_a_tensor_on_the_cpu() -> None:
    """The other way round the generator leads to the kernel of mps, which refuses the tensor in the release's words."""
    with pytest.raises(RuntimeError) as raised:
        torch.rand(2, generator=torch.Generator("mps"))
    assert str(raised.value) == (
        "Expected a 'cpu' device type for generator but found 'mps'"
        if VERSION >= (2, 13)
        else "Placeholder storage has not been allocated on MPS device!"
    )


def test_an_empty_target_takes_any_generator() -> None:
    """The generator is looked at only where something is drawn."""
    assert empty("float", 0).uniform_(generator=on_cpu()).shape == (0,)


since_2_13 = pytest.mark.skipif(VERSION < (2, 13), reason="the texts of the MPSGraph kernels up to 2.12 are others")


REFUSED: list[tuple[str, Callable[[], object]]] = [
    (
        "uniform_ expects to return a [from, to) range, but found from=2 > to=1",
        lambda: empty("float", 3).uniform_(2, 1),
    ),
    ("to is out of bounds for c10::Half", lambda: empty("half", 3).uniform_(0, 7e4)),
    ("normal expects std >= 0.0, but found std -1", lambda: empty("float", 3).normal_(0, -1)),
    (
        "normal expects all elements of std >= 0.0",
        lambda: torch.normal(torch.ones(2, device="mps"), torch.tensor([1.0, -1.0], device="mps")),
    ),
    ("exponential_ expects lambda > 0.0, but found lambda=-1", lambda: empty("float", 3).exponential_(-1)),
    ("Failed to create function state object for: exponential_int", lambda: empty("int", 3).exponential_()),
    (
        "Failed to create function state object for: exponential_float2",
        lambda: torch.empty(3, dtype=torch.complex64, device="mps").exponential_(),
    ),
    ("cauchy_ expects sigma > 0.0, but found sigma=0", lambda: empty("float", 3).cauchy_(0, 0)),
    (
        (
            "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you "
            "specified int"
        ),
        lambda: empty("int", 3).cauchy_(),
    ),
    ("log_normal_ expects std > 0.0, but found std=0", lambda: empty("float", 3).log_normal_(0, 0)),
    ("geometric_ expects p to be in (0, 1), but got p=1", lambda: empty("float", 3).geometric_(1)),
    ("bernoulli_ expects p to be in [0, 1], but got p=1.5", lambda: empty("float", 3).bernoulli_(1.5)),
    (
        "bernoulli_mps_ expects p to be in [0, 1], but got p=1.5",
        lambda: empty("float", 3).bernoulli_(torch.tensor(1.5, device="mps")),
    ),
    (
        "bernoulli_mps_ expects p to be in [0, 1]",
        lambda: empty("float", 3).bernoulli_(torch.tensor([0.5, -0.5, 0.5], device="mps")),
    ),
    (
        "bernoulli_mps_: probability and self tensor should be of the same shape",
        lambda: empty("float", 3).bernoulli_(torch.ones(2, device="mps")),
    ),
    (
        "random_mps handles only integral, floating-point and boolean types",
        lambda: torch.empty(3, dtype=torch.complex64, device="mps").random_(),
    ),
    ("n must be non-negative, got-1", lambda: torch.randperm(-1, out=empty("long", 0))),
    ("n cannot be greater than 2049 for Half type.", lambda: torch.randperm(2050, dtype=torch.float16, device="mps")),
    (
        "value cannot be converted to type uint8_t without overflow",
        lambda: torch.randperm(300, dtype=torch.uint8, device="mps"),
    ),
    ("cannot sample n_sample <= 0 samples", lambda: torch.multinomial(torch.ones(2, device="mps"), 0)),
    (
        "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
        lambda: torch.multinomial(torch.ones(2, device="mps"), 3),
    ),
    ("prob_dist must be 1 or 2 dim", lambda: torch.multinomial(torch.ones(2, 2, 2, device="mps"), 1)),
    (
        "multinomial only supports floating-point dtypes for input, got: Long",
        lambda: torch.multinomial(torch.ones(2, dtype=torch.int64, device="mps"), 1),
    ),
    (
        "multinomial expects Long tensor out, got: Int",
        lambda: torch.multinomial(torch.ones(2, device="mps"), 1, out=empty("int", 0)),
    ),
    (
        "number of categories cannot exceed 2^24",
        lambda: torch.multinomial(torch.ones(2**24 + 1, dtype=torch.float16, device="mps"), 1),
    ),
    (
        "probability tensor contains either `inf`, `nan` or element < 0",
        lambda: torch.multinomial(torch.tensor([1.0, -1.0], device="mps"), 1),
    ),
    (
        "probability tensor contains either `inf`, `nan` or element < 0",
        lambda: torch.multinomial(torch.tensor([1.0, math.nan], device="mps"), 1),
    ),
    (
        "invalid multinomial distribution (sum of probabilities <= 0)",
        lambda: torch.multinomial(torch.tensor([[1.0, 0.0], [0.0, 0.0]], device="mps"), 1),
    ),
    (
        "native_dropout_mps: input must be a floating-point or complex tensor, got Int",
        lambda: torch.native_dropout(torch.ones(3, dtype=torch.int32, device="mps"), 0.5, True),
    ),
    (
        (
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        ),
        lambda: torch.empty(1, device="mps").expand(3).uniform_(),
    ),
]

OF_A_CLASS: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (NotImplementedError, "\"check_uniform_bounds\" not implemented for 'Int'", lambda: empty("int", 3).uniform_()),
    (TypeError, "normal_kernel_mps not implemented for 'Int'", lambda: empty("int", 3).normal_()),
    (TypeError, "normal_kernel_mps not implemented for 'Bool'", lambda: empty("bool", 3).normal_()),
    (
        NotImplementedError,
        "\"random_kernel_mps_range_calc\" not implemented for 'UInt16'",
        lambda: empty("ushort", 3).random_(),
    ),
]


@since_2_13
@pytest.mark.parametrize(("error", "text", "call"), [*((RuntimeError, *row) for row in REFUSED), *OF_A_CLASS])
def test_refused_parameters_and_types(error: type[Exception], text: str, call: Callable[[], object]) -> None:
    """Bad parameters raise torch's texts, types without a kernel the backend's; some only at the next wait."""
    with pytest.raises(error) as raised:
        call()
        torch.mps.synchronize()
    assert text == str(raised.value)


@since_2_13
def test_checks_inside_kernels_raise_accelerator_errors() -> None:
    """What a Mac finds out while its GPU runs is a torch.AcceleratorError, a RuntimeError."""
    with pytest.raises(torch.AcceleratorError):
        torch.multinomial(torch.zeros(3, device="mps"), 1)
        torch.mps.synchronize()


def test_integer_ranges_are_checked_as_the_release_checks_them() -> None:
    """Up to torch 2.12 mps has its own random_mps_, which lets integers leave the dtype's range, and wrap."""
    since_13 = VERSION >= (2, 13)
    name = "random_" if since_13 else "random_mps_"
    with pytest.raises(RuntimeError, match="expects 'from' to be less") as raised:
        empty("int", 3).random_(5, 5)
    assert str(raised.value) == f"{name} expects 'from' to be less than 'to', but got from=5 >= to=5"
    if since_13:
        with pytest.raises(RuntimeError) as raised:
            torch.randint(0, 300, (3,), dtype=torch.uint8, device="mps")
        assert str(raised.value) == "to - 1 is out of bounds for unsigned char"
    else:
        assert torch.randint(290, 300, (3,), dtype=torch.uint8, device="mps").lt(44).all()
    assert torch.randint(0, 256, (0,), dtype=torch.uint8, device="mps").numel() == 0


def test_ranges_of_floats_are_told_under_the_name_that_the_release_has() -> None:
    """Bounds that meet when they are rounded to float16, and one from which on float16 knows no more whole numbers."""
    since_13 = VERSION >= (2, 13)
    name = "random_" if since_13 else "random_mps_"
    half = torch.empty(3, dtype=torch.float16, device="mps")
    with pytest.raises(RuntimeError) as raised:
        half.random_(2051, 2052)
    assert str(raised.value) == (
        f"{name} expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from=2051 >= to=2050"
    )
    with pytest.raises(RuntimeError) as raised:
        half.random_(3000, None)
    to = "to_inc" if since_13 else "to"
    assert str(raised.value) == (
        f"{name} expects 'from' casted to dtype to be less than or equal to '{to}' casted to dtype, but got from=3000"
        f" > {to}=2048"
    )


def test_a_range_that_metal_would_divide_by(virtual_device: torch.device) -> None:
    """A range of 2^32 in a 4-byte tensor is refused in words of our own: Metal takes it modulo 2^32."""
    with pytest.raises(RuntimeError) as raised:
        empty("uint", 3).random_(0, 2**32)
    assert str(raised.value) == (
        "anymps: random_ over 4294967296 values into UInt32: Metal takes the range modulo 2^32, here 0, and divides by "
        "it. Use a range below 2^32 or an int64 tensor."
    )


def test_a_refused_call_leaves_the_stream_alone() -> None:
    """After a refusal the generator stands where it stood, and goes on."""
    generator, reference = pair()
    with pytest.raises(RuntimeError):
        empty("int", 3).exponential_(generator=generator)
    with pytest.raises(RuntimeError):
        empty("float", 3).uniform_(2, 1, generator=generator)
    assert reference_numbers(reference) == elements(torch.rand(5, device="mps", generator=generator))


# ---------------------------------------------------------------------------------------------------- recording


def test_draws_are_recorded(virtual_device: torch.device, tmp_path: Path) -> None:
    """Each call is one entry of its operator; a refused generator is a refusal with its text."""
    import anymps

    path = tmp_path / "recording.db"
    x = torch.ones(2, 3, device="mps")
    with anymps.record(path):
        torch.rand(4, device="mps")
        torch.multinomial(x, 1)
        torch.normal(x, x)
        torch.randperm(5, device="mps")
        with pytest.raises(RuntimeError):
            empty("float", 2).normal_(generator=on_cpu())
    with closing(sqlite3.connect(path)) as database, database:
        entries = database.execute(
            "select o.name, s.inputs, s.outputs from entries e join signatures s on e.signature = s.id"
            " join operators o on s.operator = o.id where o.name not like '%empty%' and e.flags & 2 = 0"
        ).fetchall()
        refusals = database.execute("select kind, error, message from refusals").fetchall()
    assert entries == [
        ("aten::uniform_", '["float32[4]"]', "[]"),
        ("aten::multinomial", '["float32[2, 3]"]', '["int64[2, 1]"]'),
        ("aten::normal.Tensor_Tensor", '["float32[2, 3]", "float32[2, 3]"]', '["float32[2, 3]"]'),
        ("aten::randperm.generator_out", '["int64[5]"]', "[]"),
    ]
    assert refusals == [("generator", "RuntimeError", FOREIGN)]
