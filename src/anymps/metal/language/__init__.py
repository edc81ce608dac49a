"""Refuses what Metal's compiler refuses and C++ compilers accept, by one syntax tree of the shader."""

from anymps.metal.language._rules import refused_by_language, warn_without_parser
from anymps.metal.language._tree import Tree, has_parser
