"""From Metal to C++: passes over the tokens of a shader. They need neither a compiler nor libclang."""

from anymps.metal.translation._brackets import (
    SPACES,
    closing,
    closing_angle,
    is_attribute,
    names_a_class,
)
from anymps.metal.translation._call_places import CALLED
from anymps.metal.translation._fission_text import PLANE
from anymps.metal.translation._launchers import INITIALISERS, launchers
from anymps.metal.translation._parameters import INDICES, MAX_BUFFERS, POSITIONS, Refused, Unsupported, refused_buffers
from anymps.metal.translation._rewrite import Translation, call_names, closure, translate
from anymps.metal.translation._structure import read_structure
from anymps.metal.translation._tokens import Edit, Rewritten, Token, apply, tokenize
