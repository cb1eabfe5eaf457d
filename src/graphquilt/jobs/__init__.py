"""From a graph to its embedding: the steps, the jobs that keep them, and what can be done with a job.

``steps`` has cut() and stitch(), and ``patch_embedding`` the step between them; each takes any :class:`Store`, a
plain dict included. ``settings`` and ``source`` say how a job is made, ``job`` makes it, and
``directory`` keeps it in a folder.
"""

from graphquilt.jobs.cutting import Cutting, stored_patch_graph
from graphquilt.jobs.description import describe, differences, restored
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.embedded import EmbeddedPatches
from graphquilt.jobs.embedding import embed
from graphquilt.jobs.estimator import GraphQuilt
from graphquilt.jobs.evaluation import Evaluation, classify_job, compare_job, evaluate_job, keep_routes
from graphquilt.jobs.export import export_embedding, format_of, write_embedding
from graphquilt.jobs.imported import align_files, import_patches
from graphquilt.jobs.job import Job
from graphquilt.jobs.nearest import Neighbours, neighbours
from graphquilt.jobs.patch_embedding import embed_patches
from graphquilt.jobs.plan import Plan, Sizes, StagePlan, plan_job, plan_sizes
from graphquilt.jobs.recipe import Recipe, common_motions
from graphquilt.jobs.result import Result
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.source import Source
from graphquilt.jobs.status import Advice, JobProgress, JobStatus, fit_advice, follow_job, job_status
from graphquilt.jobs.steps import cut, stitch
from graphquilt.jobs.store import Record, Store
from graphquilt.jobs.tasks import patch_seed
from graphquilt.jobs.workers import Processes

__all__ = [
    "Advice",
    "Cutting",
    "DirectoryStore",
    "EmbeddedPatches",
    "Evaluation",
    "GraphQuilt",
    "Job",
    "JobProgress",
    "JobSettings",
    "JobStatus",
    "Neighbours",
    "Plan",
    "Processes",
    "Recipe",
    "Record",
    "Result",
    "Sizes",
    "Source",
    "StagePlan",
    "Store",
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
