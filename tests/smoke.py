"""What an installed wheel must do where no source tree can be seen; run by make dist, not by pytest."""

import sys

import numpy as np

import graphquilt as gq
from graphquilt.testing import quilt

made = quilt(12, 4, noise=0.01, scaled=True)
alignment = gq.align(made.patches, made.edges, scale=True)
X = gq.centroid(made.patches, alignment)
worst = float(alignment.edge_errors.max())
if X.shape != made.points.shape or not np.isfinite(X).all() or worst > 0.1:
    sys.exit(f"the installed package does not align: worst edge error {worst}")
sys.stdout.write(f"graphquilt {gq.__version__} from {gq.__file__} aligns: worst edge error {worst:.4f}\n")
