"""The data sets of the paper by name, in several file formats, and a small one that needs no file."""

from graphquilt.datasets.loading import (
    Dataset,
    dataset_files,
    dataset_folder,
    dataset_names,
    fetch_dataset,
    load_dataset,
)

__all__ = ["Dataset", "dataset_files", "dataset_folder", "dataset_names", "fetch_dataset", "load_dataset"]
