"""From a graph to its embedding: the steps, the jobs that keep them, and what can be done with a job.

``cutting``, ``patch_embedding`` and ``stitching`` hold the steps, and ``recipe`` their options; each takes any
:class:`Store`, a plain dict included. ``settings`` and ``source`` say how a job is made, ``job`` makes it, and
``directory`` keeps it in a folder.
"""

from graphquilt.jobs.calls import patch_seed
from graphquilt.jobs.cutting import Cutting, cut, stored_patch_graph
from graphquilt.jobs.description import describe, differences, restored
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.embedding import QuiltResult, embed
from graphquilt.jobs.evaluation import Evaluation, classify_job, compare_job, evaluate_job, keep_routes
from graphquilt.jobs.export import export_embedding, format_of, write_embedding
from graphquilt.jobs.imported import align_files, import_patches
from graphquilt.jobs.job import Job
from graphquilt.jobs.nearest import Neighbours, neighbours
from graphquilt.jobs.patch_embedding import embed_patches
from graphquilt.jobs.plan import Plan, Sizes, StagePlan, plan_job, plan_sizes
from graphquilt.jobs.recipe import Recipe, common_motions
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.source import Source
from graphquilt.jobs.status import Advice, JobProgress, JobStatus, fit_advice, follow_job, job_status
from graphquilt.jobs.stitching import stitch
from graphquilt.jobs.store import Record, Store
from graphquilt.jobs.stored import StoredPatches
from graphquilt.jobs.workers import Processes

__all__ = [
    "Advice",
    "Cutting",
    "DirectoryStore",
    "Evaluation",
    "Job",
    "JobProgress",
    "JobSettings",
    "JobStatus",
    "Neighbours",
    "Plan",
    "Processes",
    "QuiltResult",
    "Recipe",
    "Record",
    "Sizes",
    "Source",
    "StagePlan",
    "Store",
    "StoredPatches",
    "align_files",
    "classify_job",
    "common_motions",
    "compare_job",
    "cut",
    "describe",
    "differences",
    "embed",
    "embed_patches",
    "evaluate_job",
    "export_embedding",
    "fit_advice",
    "follow_job",
    "format_of",
    "import_patches",
    "job_status",
    "keep_routes",
    "neighbours",
    "patch_seed",
    "plan_job",
    "plan_sizes",
    "restored",
    "stitch",
    "stored_patch_graph",
    "write_embedding",
]
