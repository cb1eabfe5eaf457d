"""Jobs: settings, the class that owns a job, and what can be done with one.

``settings`` and ``source`` say how a job is made, ``job`` makes it, ``embedding`` holds :func:`embed` and ``foreign``
:func:`stitch_files`; ``directory``,
``graphs`` and ``lock`` keep a job in a folder, ``workers`` runs it on processes; ``status``, ``evaluation``, ``plan``,
``export`` and ``nearest`` look at it.
"""

from graphquilt.jobs.advice import Advice, fit_advice
from graphquilt.jobs.costs import Sizes
from graphquilt.jobs.directory import DirectoryStore
from graphquilt.jobs.embedding import QuiltResult, embed
from graphquilt.jobs.evaluation import Evaluation, classify_job, compare_job, evaluate_job, keep_routes
from graphquilt.jobs.export import export_embedding, format_of, write_embedding
from graphquilt.jobs.following import JobProgress, follow_job
from graphquilt.jobs.foreign import foreign_job, stitch_files
from graphquilt.jobs.job import Job
from graphquilt.jobs.nearest import Neighbours, neighbours
from graphquilt.jobs.plan import Plan, StagePlan, plan_job, plan_sizes
from graphquilt.jobs.settings import JobSettings
from graphquilt.jobs.source import Source
from graphquilt.jobs.status import JobStatus, job_status
from graphquilt.jobs.workers import Processes

__all__ = [
    "Advice",
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
    "Sizes",
    "Source",
    "StagePlan",
    "classify_job",
    "compare_job",
    "embed",
    "evaluate_job",
    "export_embedding",
    "fit_advice",
    "follow_job",
    "foreign_job",
    "format_of",
    "job_status",
    "keep_routes",
    "neighbours",
    "plan_job",
    "plan_sizes",
    "stitch_files",
    "write_embedding",
]
