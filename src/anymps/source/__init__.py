"""The user's Python: read once, asked about by line and name, and edited with all else left as it stands."""

from __future__ import annotations

from anymps.source._code import Code, Splice, in_one_line
from anymps.source._edits import Built, CallEdit, Edit, Guard, Insert, LineEdit, Rewritten, build, fits
from anymps.source._files import (
    comments_in,
    line_end,
    line_starts,
    parse_expression,
    parsed,
    rows,
    rows_within_texts,
    running_nodes,
    scope_of,
    text_of,
    tree_of,
    tree_of_frame,
    without_comment,
)
from anymps.source._names import Names
from anymps.source._nodes import (
    CUDA,
    argument,
    choices_of,
    compares_device,
    contains,
    elements,
    is_device_text,
    last_name,
    mentions_mps,
    name_of,
    names_argument,
    names_given,
    names_in,
    parameter_with,
    text_in,
    unpacks,
)
from anymps.source._place import Place, place_in_file, place_in_lines, statements_in
from anymps.source._quote import Quote, quote_file, quote_text
from anymps.source._statements import (
    FUNCTIONS,
    LOOPS,
    assignments,
    assignments_in,
    first_row,
    function_around,
    imported,
    is_main_guard,
    last_given,
    loops_around,
    methods_of,
    own_nodes,
    rows_at,
    statements_around,
)
