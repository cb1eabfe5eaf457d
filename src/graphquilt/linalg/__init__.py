"""Mathematics that knows nothing of graphs, nodes or patches: Procrustes, Laplacians, eigenpairs."""
