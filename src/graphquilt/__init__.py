"""graphquilt: graph embeddings stitched from independently embedded patches.

Every public name is loaded when it is first used, so that ``import graphquilt`` and ``graphquilt --help`` cost
nothing. ``__init__.pyi`` tells type checkers the same names.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Public name -> the module that defines it. No module bears the name of a public function: importing the module
# would put it in the function's place.
_HOMES = {
    "AdamLogistic": "evaluate",
    "Alert": "anomaly",
    "Alignment": "alignment",
    "AnomalyScores": "anomaly",
    "Comparison": "evaluate",
    "Conductance": "sparsify",
    "ConvergenceError": "errors",
    "CoverError": "errors",
    "DGI": "embedders",
    "Diagnosis": "evaluate",
    "DirectoryStore": "store",
    "DisconnectedError": "errors",
    "Embedder": "embedders",
    "Encoder": "embedders",
    "Explanation": "anomaly",
    "Fennel": "partition",
    "Fit": "embedders",
    "FlowCounts": "flows",
    "Flows": "flows",
    "FormatError": "errors",
    "FunctionEmbedder": "embedders",
    "GAE": "embedders",
    "Graph": "graph",
    "Grid": "evaluate",
    "InputError": "errors",
    "JobError": "errors",
    "KaMinPar": "partition",
    "Leiden": "partition",
    "Limits": "patches",
    "Louvain": "partition",
    "Metis": "partition",
    "MissingExtraError": "errors",
    "Names": "windows",
    "OverlapError": "errors",
    "Patch": "patches",
    "PatchGraph": "patches",
    "PatchesFailedError": "errors",
    "Processes": "workers",
    "Progress": "progress",
    "PyGEmbedder": "embedders",
    "QuiltError": "errors",
    "QuiltResult": "pipeline",
    "Recipe": "recipes",
    "Resistance": "sparsify",
    "Round": "consensus",
    "SVD": "embedders",
    "ScikitLogistic": "evaluate",
    "SideScores": "anomaly",
    "Snapshots": "windows",
    "Split": "evaluate",
    "Target": "embedders",
    "Tracker": "anomaly",
    "TransformerEmbedder": "embedders",
    "VGAE": "embedders",
    "Window": "windows",
    "WindowScores": "anomaly",
    "alert_quality": "evaluate",
    "align": "alignment",
    "align_components": "alignment",
    "align_hierarchical": "alignment",
    "average_precision": "evaluate",
    "bipartite_svd": "embedders",
    "build_csr": "ingest",
    "centroid": "alignment",
    "classification_accuracy": "evaluate",
    "compare": "evaluate",
    "compare_routes": "evaluate",
    "consensus_targets": "consensus",
    "coverage": "patches",
    "coverage_weights": "patches",
    "dataset_files": "datasets",
    "dataset_names": "datasets",
    "deviations": "anomaly",
    "diagnose": "evaluate",
    "edge_cut": "partition",
    "embed": "pipeline",
    "embed_in_rounds": "pipeline",
    "embed_patches": "fanout",
    "embed_window": "anomaly",
    "explain": "anomaly",
    "fetch_dataset": "datasets",
    "from_networkx": "ingest",
    "from_pyg": "ingest",
    "hold_out_edges": "evaluate",
    "inner_product": "evaluate",
    "lag_edges": "windows",
    "leave_one_out_zscore": "anomaly",
    "link_prediction_auc": "evaluate",
    "load_dataset": "datasets",
    "merge_small": "partition",
    "mlp_grid": "evaluate",
    "negative_distance": "evaluate",
    "outliers": "anomaly",
    "patch_graph": "patches",
    "procrustes_error": "evaluate",
    "random_splits": "evaluate",
    "rank_alerts": "anomaly",
    "read_edges": "ingest",
    "read_flows": "flows",
    "read_mag240m": "ingest",
    "reconstruction_auc": "evaluate",
    "refine": "alignment",
    "roc_auc": "evaluate",
    "sample_non_edges": "evaluate",
    "score_windows": "anomaly",
    "snapshots": "windows",
    "threshold": "anomaly",
    "to_networkx": "ingest",
    "to_pyg": "ingest",
    "undetermined_directions": "alignment",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


_MODULES = ("conformance", "datasets", "synthetic")  # public as modules: graphquilt.synthetic.quilt(...)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"graphquilt.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'graphquilt' has no attribute '{name}'")
    value = getattr(import_module(f"graphquilt.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *_MODULES, "__version__"]
