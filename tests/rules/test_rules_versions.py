"""Which torch releases are supported and what differs between them."""

from __future__ import annotations

import pytest

from anymps._errors import EnableError, UnsupportedTorchError
from anymps.rules import NEWEST, SUPPORTED, check_supported, installed_torch, parse_torch_version, version_rules
from anymps.rules._versions import CpuCopyToFloat64, Generation

RELEASES = ("2.11", "2.12", "2.13", "2.14", "2.15")


def test_a_version_text_is_taken_apart() -> None:
    """Release, suffix and build of a version text are told apart, and put together again by str()."""
    version = parse_torch_version("2.13.0+cpu")
    assert (version.release, version.patch, version.suffix, version.build) == ((2, 13), 0, "", "cpu")
    assert str(version) == "2.13.0+cpu"
    assert parse_torch_version("2.14.0a0+git08187d9").release == (2, 14)
    assert str(parse_torch_version("2.14.1rc2")) == "2.14.1rc2"
    assert version is parse_torch_version(version)


@pytest.mark.parametrize("text", ["", "two", "2", "v2.13"])
def test_a_text_that_is_no_version_is_refused(text: str) -> None:
    """A text that is not a version raises UnsupportedTorchError with the text in it."""
    with pytest.raises(UnsupportedTorchError) as caught:
        parse_torch_version(text)
    assert f'anymps: "{text}" is not a torch version; expected something like 2.13.0' == str(caught.value)


@pytest.mark.parametrize("text", ["2.10.0", f"{NEWEST[0]}.{NEWEST[1] + 1}.0", "1.13.1", "3.0.0"])
def test_other_releases_are_refused(text: str) -> None:
    """Outside of the supported range nothing is guessed: UnsupportedTorchError, which is an EnableError."""
    with pytest.raises(EnableError) as caught:
        check_supported(text)
    assert str(caught.value) == (
        f"anymps: torch {text} is not supported; install torch {SUPPORTED}, whose MPS rules are known"
    )
    assert isinstance(caught.value, UnsupportedTorchError)


def test_allocator_generations() -> None:
    """2.11 has five pools, 2.12 and 2.13 three, 2.14 and 2.15 placement heaps."""
    expected = [Generation.G1, Generation.G2, Generation.G2, Generation.G3, Generation.G3]
    assert expected == [version_rules(release).generation for release in RELEASES]


def test_what_a_release_took_away() -> None:
    """Bounds as the result's type, Python kernels and always-fallback operators end with their releases."""
    rules = [version_rules(release) for release in RELEASES]
    assert [rule.arange_bounds_as_result for rule in rules] == [True, True, True, False, False]
    assert [len(rule.python_kernels) for rule in rules] == [3, 3, 1, 0, 0]
    assert rules[2].always_fallback == ("embedding_renorm_", "linalg_svd", "linalg_svd.U")
    assert rules[3].always_fallback == ("embedding_renorm_",)


def test_other_steps() -> None:
    """What is no switch, or holds for some releases in the middle, changes in its own steps."""
    rules = [version_rules(release) for release in RELEASES]
    assert [rule.oldest_macos for rule in rules] == [14, 14, 14, 14, 15]
    assert [rule.newest_minor_of_macos_26 for rule in rules] == [0, 0, 0, 0, 4]
    assert [rule.philox_kernels for rule in rules] == [13, 13, 13, 14, 15]
    assert [rule.exponential_can_be_zero for rule in rules] == [False, False, True, False, False]
    assert [rule.cpu_copy_target_unseen for rule in rules] == [False, False, True, True, False]
    refused = CpuCopyToFloat64.REFUSED
    expected = [refused, refused, refused, CpuCopyToFloat64.SILENT, CpuCopyToFloat64.UNDEFINED]
    assert [rule.cpu_copy_to_float64 for rule in rules] == expected


def test_the_installed_torch_is_read_without_importing_it() -> None:
    """Version and build commit of the wheel on disk are those that torch states."""
    import torch

    wheel = installed_torch()
    assert (torch.__version__, torch.version.git_version) == (str(wheel.version), wheel.git_version)
