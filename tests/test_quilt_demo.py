"""The demonstration of the alignment, as a person would run it."""

import subprocess
import sys

from graphquilt.cli import app, demo, run


def test_the_command_sews_a_quilt_and_says_where_it_is(tmp_path):
    command = [sys.executable, "-c", "from graphquilt.cli import main; main()", "demo", "quilt", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Good: the overlaps agree" in done.stdout
    assert (tmp_path / "quilt.svg").read_text().count("<circle") == 4000


def test_the_alignment_finds_the_truth(tmp_path):
    figures = demo.quilt_demo(tmp_path, quiet=True)
    assert figures["patches"] == 60
    assert figures["error"] < 0.05
    assert figures["error without alignment"] > 1


def test_the_demo_needs_no_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "find_spec", lambda package: None)
    run(app, ["demo", "--out", str(tmp_path)])
    assert {"quilt.svg", "blocks.svg", "report.html", "job"} <= {path.name for path in tmp_path.iterdir()}
    printed = capsys.readouterr().out
    assert "| l2g |" in printed
    assert "pip install 'graphquilt[eval,torch]'" in printed
