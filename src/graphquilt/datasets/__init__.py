"""The data sets of the paper by name, in several file formats, and a small one that needs no file."""

from graphquilt.datasets.catalogue import Dataset, dataset_files, dataset_folder, dataset_names
from graphquilt.datasets.fetch import fetch_dataset
from graphquilt.datasets.loading import load_dataset

__all__ = ["Dataset", "dataset_files", "dataset_folder", "dataset_names", "fetch_dataset", "load_dataset"]
