"""What a Mac is: names people write, Macs that were never sold, memory limits that equal real readings."""

from __future__ import annotations

import pytest

from anymps._errors import AnympsError, MacError
from anymps.mac import DEFAULT_MAC, DEFAULT_MACOS, Mac, all_macs, parse_mac, parse_memory

GIB = 1024**3


@pytest.mark.parametrize(
    ("text", "name", "gpu_cores", "macos"),
    [
        ("M3 Pro 18GB", "M3 Pro 18GB", 18, DEFAULT_MACOS),
        ("M2 8GB", "M2 8GB", 10, DEFAULT_MACOS),
        ("MacBook Pro M3 Max 40-core 64GB, macOS 15.4", "M3 Max 64GB", 40, (15, 4)),
        ("m1", "M1 8GB", 8, DEFAULT_MACOS),
        ("Apple M4 Max 36 GB macOS 26", "M4 Max 36GB", 32, (26, 0)),
        ("m3pro18gb", "M3 Pro 18GB", 18, DEFAULT_MACOS),
        ("14-inch MacBook Pro (2023), M2 Pro, 12-core CPU, 32 GB unified memory", "M2 Pro 32GB", 19, DEFAULT_MACOS),
        ("M3 Max 16-core 48GB", "M3 Max 48GB", 40, DEFAULT_MACOS),
        ("Mac Studio M2 Ultra 192 GB Sequoia", "M2 Ultra 192GB", 76, (15, 0)),
        ("M1 Pro 10-core CPU 14-core GPU 16GB", "M1 Pro 16GB", 14, DEFAULT_MACOS),
        ("MacBook Neo", "A18 Pro 8GB", 5, DEFAULT_MACOS),
        ("macOS 15.4.1, M1 Max 64gb", "M1 Max 64GB", 32, (15, 4)),
        ("M5 16GB, macOS 26.2", "M5 16GB", 10, (26, 2)),
        ("M3 Pro 18GB, macOS 27", "M3 Pro 18GB", 18, (27, 0)),
    ],
)
def test_names_people_write(text: str, name: str, gpu_cores: int, macos: tuple[int, int]) -> None:
    """Case, spaces, commas and model names do not matter; memory, bin and macOS have documented defaults."""
    mac = parse_mac(text)
    assert (name, gpu_cores, macos) == (mac.name, mac.gpu_cores, mac.macos)


def test_default_memory_is_the_smallest_and_default_bin_the_largest_with_it() -> None:
    """`M4 Max` is the 36 GB machine, which only exists with 32 GPU cores; with 48 GB it has 40."""
    assert (parse_mac("M4 Max").ram_gib, parse_mac("M4 Max").gpu_cores) == (36, 32)
    assert (parse_mac("M4 Max 48GB").ram_gib, parse_mac("M4 Max 48GB").gpu_cores) == (48, 40)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("M3 Pro 20GB", "anymps: M3 Pro has 18 or 36 GB, not 20"),
        ("M3 Pro 8GB", "anymps: M3 Pro has 18 or 36 GB, not 8"),
        (
            "M4 Max 40-core 36GB",
            'anymps: there is no Mac "M4 Max 40-core 36GB"; nearest: M4 Max 32-core 36GB, M4 Max 40-core 48GB',
        ),
        ("M1 12-core", 'anymps: there is no Mac "M1 12-core"; nearest: M1 7-core 8GB, M1 8-core 8GB'),
        ("M4 Ultra", 'anymps: there is no Mac "M4 Ultra"; nearest: M4, M4 Pro, M4 Max'),
        ("M9", 'anymps: there is no Mac "M9"; nearest: M1, M2, M3, M4, M5'),
        ("16GB", 'anymps: no chip in "16GB"; write "M2 8GB"'),
        ("", 'anymps: no chip in ""; write "M2 8GB"'),
        ("M4 banana", 'anymps: unknown "banana" in "M4 banana"; write "M3 Pro 18GB, macOS 15.4"'),
        ("M3 Pro 18", 'anymps: unknown "18" in "M3 Pro 18"; write "18GB"'),
        ("M4 Max 20GB", "anymps: M4 Max has 36, 48, 64 or 128 GB, not 20"),
        ("M5 macOS 15", "anymps: Apple M5 does not run macOS 15.0: the chip came out with macOS 26"),
        (
            "M1 macOS 13",
            "anymps: macOS 13.0 is too old: torch 2.11 to 2.14 need macOS 14, torch 2.15 needs macOS 15",
        ),
        ("M1 macOS 20.1", "anymps: there is no macOS 20.1: macOS 15 is followed by macOS 26"),
    ],
)
def test_impossible_macs_are_refused_in_one_line(text: str, message: str) -> None:
    """A Mac that was never sold, or a word that says nothing, raises MacError and names the nearest real ones."""
    with pytest.raises(MacError) as caught:
        parse_mac(text)
    assert message == str(caught.value)


def test_sizes_of_memory() -> None:
    """What other programs take is said as a Mac's memory is; anything else is refused in one line."""
    assert parse_memory("6GB") == parse_memory(" 6 GiB") == 6 << 30
    for text in ("6", "lots", "-1GB", "6GB M3"):
        with pytest.raises(MacError) as caught:
            parse_memory(text)
        assert str(caught.value) == f'anymps: "{text}" is no size of memory; write "6GB"'


def test_a_newer_macos_is_taken_for_the_newest_known_one() -> None:
    """Its limits are those of the newest known one until somebody publishes others, and it says so."""
    new, known = parse_mac("M3 Pro 18GB, macOS 27.1"), parse_mac("M3 Pro 18GB, macOS 26.4")
    said = "macOS 27.1 is not known yet: its limits are taken to be those of macOS 26"
    assert (new.macos, new.assumed, known.assumed) == ((27, 1), said, "")
    assert new.recommended_max_memory == known.recommended_max_memory
    assert new.max_buffer_length == known.max_buffer_length
    assert new.describe() == known.describe().replace("26.4", "27.1") + f"; {said}"


def test_mac_error_is_a_value_error_with_exit_code_two() -> None:
    """Callers may catch ValueError; a command exits with status 2."""
    assert issubclass(MacError, ValueError)
    assert issubclass(MacError, AnympsError)
    assert MacError.exit_code == 2


@pytest.mark.parametrize(
    ("text", "recommended", "buffer"),
    [
        # readings: mx.device_info and Metal dumps; pytorch issue 189215 (24 GB); llama.cpp pull request 16634
        ("M1 8GB macOS 14", 5_726_633_984, None),
        ("M1 16GB macOS 14", 11_453_251_584, 8_589_934_592),
        ("M4 24GB macOS 15", 17_179_885_568, None),
        ("M1 Max 64GB macOS 14", 48 * GIB, 36 * GIB),
        ("M2 Ultra 192GB macOS 15", 144 * GIB, 108 * GIB),
        ("M3 Ultra 256GB macOS 15", 223_338_299_392, 167_503_724_544),
        ("M3 Ultra 512GB macOS 15", 498_216_206_336, None),
        ("M4 24GB macOS 26", int(17.760009765625 * GIB), int(13.32000732421875 * GIB)),
        ("M2 Max 32GB macOS 26", 26_800_603_136, 20_100_448_256),
        ("M4 Pro 48GB macOS 26", 40_200_896_512, 30_150_672_384),
        ("M5 Max 64GB macOS 26", 55_662_788_608, 41_747_087_360),
        ("M5 Max 128GB macOS 26", 115_448_725_504, 86_586_540_032),
    ],
)
def test_limits_equal_public_readings(text: str, recommended: int, buffer: int | None) -> None:
    """The working set and the largest buffer equal every exact public reading, byte for byte."""
    mac = parse_mac(text)
    assert recommended == mac.recommended_max_memory
    if buffer is not None:
        assert buffer == mac.max_buffer_length


def test_a_wired_limit_replaces_the_working_set_and_leaves_the_largest_buffer() -> None:
    """M5 Max 64 GB with 57344 MiB: the reading is 60129542144 and 41747087360 bytes."""
    mac = parse_mac("M5 Max 64GB macOS 26, wired_limit_mb=57344")
    assert (mac.recommended_max_memory, mac.max_buffer_length) == (60_129_542_144, 41_747_087_360)
    assert mac == parse_mac("M5 Max 64GB macOS 26", wired_limit_mb=57344)
    assert parse_mac("M5 Max 64GB macOS 26") == mac.with_wired_limit(0)


def test_a_wired_limit_above_the_memory_is_refused() -> None:
    """More than the machine has cannot be wired."""
    with pytest.raises(MacError) as caught:
        parse_mac("M3 Pro 18GB wired_limit_mb=20000")
    assert str(caught.value) == "anymps: iogpu.wired_limit_mb=20000 is outside 0 to 18432 on M3 Pro 18GB"


def test_every_mac_is_found_again_by_its_name() -> None:
    """Name, GPU cores and CPU cores written down name the same Mac again."""
    macs = all_macs()
    assert len(macs) > 80
    for mac in macs:
        assert mac == parse_mac(f"{mac.name}, {mac.cpu_cores}-core CPU, {mac.gpu_cores}-core GPU")


def test_old_macos_leaves_out_newer_chips() -> None:
    """On macOS 15 there are no M5 Macs, on macOS 14 no M4 ones either."""
    assert {1, 2, 3, 4} == {mac.generation for mac in all_macs((15, 6))}
    assert {1, 2, 3} == {mac.generation for mac in all_macs((14, 0))}


def test_rates_of_a_chip() -> None:
    """Rates are in bytes and FLOP a second; a chip whose clock is unknown has no peak."""
    assert DEFAULT_MAC.memory_bandwidth == 153_600_000_000
    assert DEFAULT_MAC.fp32_peak == 18 * 128 * 2 * 1380e6
    assert (parse_mac("M2 Ultra").bfloat16, parse_mac("M2 Ultra").metal_family) == ("emulated", "apple8")
    assert parse_mac("MacBook Neo").fp32_peak is None


def test_inferences_are_named() -> None:
    """What no source states stands in `inferred`, and every Mac has sources."""
    assert "256 GB on macOS 26: one table, its unit is ambiguous (Rapid-MLX pull request 183)" in (
        parse_mac("M3 Ultra 256GB").inferred
    )
    assert parse_mac("M1 16GB").inferred == ()
    assert all(mac.sources for mac in all_macs())


def test_describe_is_one_line_with_the_limits() -> None:
    """The description names chip, memory, macOS, limits and rates."""
    assert parse_mac("M3 Pro 18GB, macOS 15.4").describe() == (
        "Apple M3 Pro (18-core GPU), 18 GB, macOS 15.4: working set 12.00 GiB, largest buffer 9.00 GiB, 153.6 GB/s, "
        "bfloat16 native"
    )
    assert (
        "working set 15.62 GiB (iogpu.wired_limit_mb=16000)" in parse_mac("M3 Pro 18GB wired_limit_mb=16000").describe()
    )


def test_a_mac_is_a_value() -> None:
    """Two Macs with the same parts are equal and may be keys."""
    assert isinstance(DEFAULT_MAC, Mac)
    assert {DEFAULT_MAC} == {parse_mac("m3 pro 18 gb")}
