"""The commands of networks that are not all yours; they only move files."""

from __future__ import annotations

from cyclopts import App

from graphquilt.federated.sum_commands import add_to

federate_app = App(
    name="federate", help="Embed networks of parties that do not show them to each other; see docs/federated.md."
)
federate_app.command(
    "graphquilt.federated.align.commands:align_app",
    name="align",
    help="Align embeddings that parties made with a method of their own.",
)
add_to(federate_app)
