"""Problems with known answers, for tests, benchmarks and first steps."""

from graphquilt.synthetic.quilts import Quilt, patchwork, quilt, random_rotations, rotation_measurements

__all__ = ["Quilt", "patchwork", "quilt", "random_rotations", "rotation_measurements"]
