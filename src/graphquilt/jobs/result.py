"""Result: what embed() returns, with the ways to look at it."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

import graphquilt
from graphquilt.alignment import Alignment
from graphquilt.alignment.patch_index import stranded_nodes
from graphquilt.arrays import AnyArray, BoolArray, FloatArray
from graphquilt.errors import InputError
from graphquilt.jobs.embedded import EmbeddedPatches
from graphquilt.jobs.job import Job
from graphquilt.patches import Patch, PatchGraph

if TYPE_CHECKING:
    import pandas as pd

    from graphquilt.jobs.nearest import Neighbours

_DRAWN = 1000  # nodes of the picture in a notebook
_SIDE = 260  # its side in pixels
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")


@dataclass(frozen=True, eq=False)
class Result:
    """What :func:`embed` returns.

    Attributes
    ----------
    embedding : float array (n, dim)
        Row u is the position of node u.
    patch_graph : PatchGraph
        The patches of all runs; its edges are those that were aligned.
    patches : sequence of Patch
        The patches of all runs before alignment.
    alignment : Alignment
    node_ids : array (n,) or None
        The ids that the nodes came with, in the order of the rows; None if they are 0..n-1.
    job : Job, optional
        The job that made it, if it has a store.
    """

    embedding: FloatArray
    patch_graph: PatchGraph
    patches: Sequence[Patch]
    alignment: Alignment
    node_ids: AnyArray | None = None
    job: Job | None = field(default=None, repr=False)

    @classmethod
    def of(cls, job: Job) -> Result:
        """Return the result of a finished job."""
        from graphquilt.jobs.export import job_ids

        repeated = job.patch_graph.repeat(job.settings.recipe.runs)
        X = job.embedding
        ids = job_ids(job, len(X)) if job.graph is None else job.graph.node_ids
        return cls(X, repeated, job.patches, job.alignment, ids, job)

    @property
    def stranded(self) -> BoolArray:
        """Which nodes (n,) are only in patches that do not fit the others: do not rely on their positions."""
        left_out, node_sets = self.alignment.left_out, self.patch_graph.node_sets
        mask = np.zeros(len(self.embedding), dtype=np.bool_)
        mask[stranded_nodes(node_sets, left_out)] = True
        return mask

    def __repr__(self) -> str:
        nodes, dim = self.embedding.shape
        return f"Result({nodes} nodes, dim={dim}, {self.patch_graph!r}, {self.alignment!r})"

    def to_frame(self) -> pd.DataFrame:
        """Return the embedding as a pandas DataFrame: one row per node, indexed by its id, with columns x0, x1, …."""
        try:
            import pandas as pd
        except ImportError as error:
            raise InputError(
                "a DataFrame needs pandas: pip install pandas, or use .embedding and .node_ids."
            ) from error
        columns = [f"x{k}" for k in range(self.embedding.shape[1])]
        index = pd.RangeIndex(len(self.embedding)) if self.node_ids is None else pd.Index(self.node_ids)
        return pd.DataFrame(np.asarray(self.embedding), index=index.rename("node_id"), columns=columns)

    def neighbours(self, node: int | str, k: int = 10, *, metric: Literal["cosine", "inner"] = "cosine") -> Neighbours:
        """Find the k nodes nearest to a node; see :func:`graphquilt.neighbours`."""
        from graphquilt.jobs.nearest import neighbours

        return neighbours(self, node, k=k, metric=metric)

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write a page with the map, the patches and the quality of the fit; return its path."""
        job = self.job
        if job is None:
            if not isinstance(self.patches, EmbeddedPatches) or self.patches.settings is None:
                raise InputError("only the result of gq.embed or gq.align_files knows what a page shows.")
            job = Job(self.patches.store, self.patches.settings, self.patches.graph)
            job.keep(self.alignment, self.embedding, {})
        return Path(graphquilt.report.write_job_report(job, Path(path)))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a few facts, the verdict, and the two main directions of the embedding."""
        nodes, dim = self.embedding.shape
        patches = self.alignment.n_patches
        facts = f"{nodes:,} nodes in {dim} dimensions, {patches} {'patch' if patches == 1 else 'patches'}"
        verdict = "<br>".join(html.escape(line) for line in self.alignment.summary().splitlines()[:3])
        return f"<div><b>{facts}</b><br>{verdict}<br>{self._picture()}</div>"

    def _picture(self) -> str:
        """Draw a sample of the nodes in SVG, coloured by class if the graph has labels."""
        rows = np.linspace(0, len(self.embedding) - 1, min(len(self.embedding), _DRAWN)).astype(np.int64)
        X = np.asarray(self.embedding[rows], dtype=np.float64)
        X = X - X.mean(axis=0)
        _, _, directions = np.linalg.svd(X, full_matrices=False)
        places = np.zeros((len(X), 2))
        places[:, : min(2, len(directions))] = X @ directions[:2].T
        span = np.abs(places).max() or 1.0
        at = (_SIDE / 2 * (1 + 0.95 * places / span)).round(1)
        graph = getattr(self.patches, "graph", None)
        labels = np.zeros(len(rows), dtype=np.int64) if graph is None or graph.labels is None else graph.labels[rows]
        dots = [
            f'<circle cx="{x}" cy="{y}" r="2" fill="{_COLOURS[int(label) % len(_COLOURS)] if label >= 0 else "#bbb"}"/>'
            for (x, y), label in zip(at.tolist(), labels.tolist(), strict=True)
        ]
        return f'<svg width="{_SIDE}" height="{_SIDE}" xmlns="http://www.w3.org/2000/svg">{"".join(dots)}</svg>'
