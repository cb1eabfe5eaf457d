"""Problems with known answers, for tests, benchmarks and first steps."""

from graphquilt.synthetic.citations import citation_graph
from graphquilt.synthetic.quilts import Quilt, patchwork, quilt, random_rotations, rotation_measurements

__all__ = ["Quilt", "citation_graph", "patchwork", "quilt", "random_rotations", "rotation_measurements"]
