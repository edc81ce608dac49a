"""The environment variables of the backend: which of them a release of torch reads, and what the watermarks mean."""

from anymps.rules.variables._names import nearest_variable, unread
from anymps.rules.variables._watermarks import (
    HIGH_WATERMARK,
    LOW_WATERMARK,
    WATERMARKS,
    explain_watermark,
    watermark_ratio,
)
