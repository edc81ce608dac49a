"""What a kernel touches, shown from its source without running it. Only the checker asks."""

from anymps.metal.analysis._deciding_buffers import deciding_buffers
from anymps.metal.analysis._program import Program
from anymps.metal.analysis._similar_groups import GridPlaces, SimilarGroups, SimilarPart
