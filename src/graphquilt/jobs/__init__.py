"""From a graph to its embedding: the steps, the jobs that keep them, and what can be done with a job.

``steps`` has cut(), ``stitching`` stitch(), and ``patch_embedding`` the step between them; each takes any
:class:`Store`, a plain dict included. ``settings`` and ``source`` say how a job is made, ``job`` makes it, and
``store`` keeps it in a folder.
"""

from graphquilt.jobs.choosing import Choice, choose_by_labels
from graphquilt.jobs.evaluation import (
    Comparison,
    Diagnosis,
    Evaluation,
    compare,
    diagnose,
    evaluate_job,
    record_evaluation,
)
from graphquilt.jobs.export import Neighbours, export_embedding, format_of, neighbours, write_embedding
from graphquilt.jobs.job import Job
from graphquilt.jobs.options import Cutting, Recipe
from graphquilt.jobs.patch_embedding import embed_patches
from graphquilt.jobs.plan import Plan, Sizes, StagePlan, plan_job, plan_sizes
from graphquilt.jobs.records import patch_seed, stored_patch_graph
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.source import Source
from graphquilt.jobs.status import JobProgress, JobStatus, follow_job, job_status
from graphquilt.jobs.steps import GraphQuilt, cut, embed
from graphquilt.jobs.stitching import Result, align_files, import_patches, stitch
from graphquilt.jobs.store import DirectoryStore, Record, Store
from graphquilt.jobs.stored_patches import EmbeddedPatches
from graphquilt.jobs.updating import update
from graphquilt.jobs.versions import Update
from graphquilt.jobs.workers import Processes

__all__ = [
    "Choice",
    "Comparison",
    "Cutting",
    "Diagnosis",
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
    "Update",
    "align_files",
    "choose_by_labels",
    "compare",
    "cut",
    "diagnose",
    "embed",
    "embed_patches",
    "evaluate_job",
    "export_embedding",
    "follow_job",
    "format_of",
    "import_patches",
    "job_status",
    "neighbours",
    "patch_seed",
    "plan_job",
    "plan_sizes",
    "record_evaluation",
    "stitch",
    "stored_patch_graph",
    "update",
    "write_embedding",
]
