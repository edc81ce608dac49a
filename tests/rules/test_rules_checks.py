"""What kernels find on the device, alert about and refuse, by release: the tables of `anymps.rules`."""

from __future__ import annotations

import pytest

from anymps import UnsupportedTorchError, rules
from anymps.rules import OPERATOR_LIMITS, in_force
from anymps.rules._determinism import ALERTS
from anymps.rules._device_checks import DEVICE_CHECKS

RELEASES = ("2.11", "2.12", "2.13", "2.14", "2.15")


def texts(operator: str) -> list[str | None]:
    """What the device says of a bad index, release by release."""
    return [rules.device_checks(release).get(operator, (None, None))[1] for release in RELEASES]


def test_texts_of_bad_indices_by_release() -> None:
    """Each kernel has its words from the release on that has the check; without words it does not look."""
    indexed = "index {index} is out of bounds for dimension {dimension} with size {size}"
    gathered = "gather: index {index} is out of bounds for dimension with size {size}"
    selected = "index {index} is out of bounds for dimension with size {size}"
    assert ["Index {index} is out of bounds: {dimension}, range 0 to {size}", *[indexed] * 4] == texts("index")
    assert ["", "", *[gathered] * 3] == texts("gather")
    assert ["", "", *[gathered.replace("gather", "scatter")] * 3] == texts("scatter_add_")
    assert ["", "", "", selected, selected] == texts("index_select")
    assert [""] * 5 == texts("index_copy")
    assert [None] * 5 == texts("take")


def test_contiguous_tensors_have_a_text_without_a_dimension() -> None:
    """gather and the scatters name the dimension only in the kernel for other strides."""
    layout, text, strided = rules.device_checks("2.13")["gather"]
    assert layout == "along"
    assert (text.count("{dimension}"), strided.count("{dimension}")) == (0, 1)


def test_every_index_operator_exists() -> None:
    """Every operator of the table is one that MPS has in some release; no operator has two checks in one."""
    listed = {name.partition(".")[0] for name in rules.operator_rules()}
    for check in DEVICE_CHECKS:
        assert check.until is None or check.since <= check.until
        assert listed.issuperset(check.operators)
    for release in ((2, minor) for minor in range(11, 16)):
        names = [name for check in in_force(DEVICE_CHECKS, release) for name in check.operators]
        assert len(names) == len(set(names))


def test_alerts_by_release() -> None:
    """Alerts grow with the releases; unpooling is silent on mps in all of them."""
    names = [{row[0] for row in rules.alerts(release).values()} for release in RELEASES]
    since_13 = {"", "kthvalue MPS", "index_put_with_accumulate_mps", "index_reduce_mps", "scatter_reduce_mps"}
    assert [{"", "kthvalue MPS"}] * 2 + [since_13] * 2 == names[:4]
    assert {alert.name for alert in ALERTS} | {""} == names[4]
    assert rules.alerts("2.13")["kthvalue"] == ("kthvalue MPS", False, "", ())  # of integers too
    assert rules.alerts("2.13")["max_unpool2d"] == ("", False, "", ())
    assert rules.alerts("2.13")["_index_put_impl_"] == ("index_put_with_accumulate_mps", True, "accumulate", ("True",))


def test_limits_for_the_native_core() -> None:
    """The native core gets errors and their texts by release, and no warnings."""
    limits = [rules.operator_limits(release) for release in RELEASES]
    assert ["lu_factor complex" in found for found in limits] == [True, True, True, True, False]
    assert ["batch norm int64" in found for found in limits] == [True, True, True, False, False]
    assert limits[2]["convolution size"] == (2, "Output channels > 65536 not supported at the MPS device. ")
    assert OPERATOR_LIMITS["mm shape"].error == "UserWarning"
    assert not any("mm shape" in found for found in limits)


def test_the_assertion_of_a_missing_stub() -> None:
    """The line and the path are those of the release's wheel."""
    text = (
        'false INTERNAL ASSERT FAILED at "/Users/runner/work/pytorch/pytorch/aten/src/ATen/native/DispatchStub.cpp"'
        ":282, please report a bug to PyTorch. DispatchStub: missing kernel for mps"
    )
    assert ("RuntimeError", text) == rules.missing_stub("2.13")
    assert 'pytorch/pytorch/pytorch/aten/src/ATen/native/DispatchStub.cpp":276,' in rules.missing_stub("2.11").text


@pytest.mark.parametrize("table", [rules.device_checks, rules.alerts, rules.operator_limits, rules.missing_stub])
def test_releases_outside_the_range(table: object) -> None:
    """Nothing is guessed for a release that was not read."""
    assert callable(table)
    with pytest.raises(UnsupportedTorchError):
        table("2.10")
