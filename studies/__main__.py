"""Run a study: ``python -m studies --help``."""

from graphquilt.cli import main
from studies.commands import app

main(app)
