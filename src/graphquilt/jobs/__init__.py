"""From a graph to its embedding: the steps, the jobs that keep them, and what can be done with a job.

``cutting``, ``patch_embedding`` and ``stitching`` hold the steps, and ``recipe`` their options; each takes any
:class:`Store`, a plain dict included. ``settings`` and ``source`` say how a job is made, ``job`` makes it, and
``directory`` keeps it in a folder.
"""

from graphquilt.jobs.advice import Advice, fit_advice
from graphquilt.jobs.calls import patch_seed
from graphquilt.jobs.choosing import Choice, choose_by_labels
from graphquilt.jobs.comparison import Comparison, Diagnosis, compare, diagnose, one_encoder
from graphquilt.jobs.costs import Sizes
from graphquilt.jobs.cutting import Cutting, cut, stored_patch_graph
from graphquilt.jobs.description import describe, differences, restored
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.embedding import QuiltResult, embed
from graphquilt.jobs.evaluation import Evaluation, compare_job, evaluate_job, record_evaluation
from graphquilt.jobs.export import export_embedding, format_of, write_embedding
from graphquilt.jobs.following import JobProgress, follow_job
from graphquilt.jobs.foreign import foreign_job, stitch_files
from graphquilt.jobs.job import Job
from graphquilt.jobs.nearest import Neighbours, neighbours
from graphquilt.jobs.patch_embedding import embed_patches
from graphquilt.jobs.plan import Plan, StagePlan, plan_job, plan_sizes
from graphquilt.jobs.recipe import Recipe, common_motions
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.source import Source
from graphquilt.jobs.status import JobStatus, job_status
from graphquilt.jobs.stitching import stitch
from graphquilt.jobs.store import Record, Store
from graphquilt.jobs.stored import StoredPatches
from graphquilt.jobs.workers import Processes

__all__ = [
    "Advice",
    "Choice",
    "Comparison",
    "Cutting",
    "Diagnosis",
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
    "choose_by_labels",
    "common_motions",
    "compare",
    "compare_job",
    "cut",
    "describe",
    "diagnose",
    "differences",
    "embed",
    "embed_patches",
    "evaluate_job",
    "export_embedding",
    "fit_advice",
    "follow_job",
    "foreign_job",
    "format_of",
    "job_status",
    "neighbours",
    "one_encoder",
    "patch_seed",
    "plan_job",
    "plan_sizes",
    "record_evaluation",
    "restored",
    "stitch",
    "stitch_files",
    "stored_patch_graph",
    "write_embedding",
]
