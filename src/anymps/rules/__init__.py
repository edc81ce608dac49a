"""What the MPS backend does, by torch version: operators, waits, limits; its messages in `texts`, bugs in `faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.rules._casts import castable_dtypes, refused_cast
    from anymps.rules._coverage import Coverage, Kind, coverage, find_operators, nearest_operators
    from anymps.rules._determinism import AlertRow, alerts
    from anymps.rules._device_checks import NOT_CHECKED, device_checks
    from anymps.rules._dtypes import REFUSED_DTYPES, SCALAR_TYPES, DtypeRow, dtype_table, refused_dtype, widened_dtypes
    from anymps.rules._encoding import Family, Trait, When
    from anymps.rules._families import family
    from anymps.rules._limits import ERROR_CLASSES, OPERATOR_LIMITS, missing_stub, operator_limits
    from anymps.rules._metal_dtypes import kernel_table
    from anymps.rules._metal_kernels import has_metal_kernel, metal_kernel_since
    from anymps.rules._operators import CoreRow, core_table, fallback_operators, operator_rules
    from anymps.rules._readings import in_force
    from anymps.rules._registered import FIRST_RELEASE, LAST_RELEASE, native_since, registered, registrations
    from anymps.rules._versions import (
        NEWEST,
        OLDEST,
        SUPPORTED,
        TorchVersion,
        VersionRules,
        check_supported,
        parse_torch_version,
        version_rules,
    )
    from anymps.rules._waits import WAITS, wait_of
    from anymps.rules._wheel import installed_torch, native_functions

if not TYPE_CHECKING:
    __getattr__ = lazy_face(__name__)
