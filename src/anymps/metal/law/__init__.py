"""Refuses what Metal's compiler refuses and C++ compilers accept, by one syntax tree of the shader."""

from anymps.metal.law._rules import refused_by_law, warn_without_parser
from anymps.metal.law._tree import Tree, has_parser
