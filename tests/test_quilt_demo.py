"""The demonstration of the alignment, as a person would run it."""

import json
import subprocess
import sys

from extras import needs


def test_the_command_sews_a_quilt_and_says_where_it_is(tmp_path):
    needs("matplotlib")
    command = [sys.executable, "-c", "from graphquilt.cli import main; main()", "demo", "quilt", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Good: the overlaps agree" in done.stdout
    figures = json.loads((tmp_path / "quilt.json").read_text())
    assert figures["patches"] == 60
    assert figures["root mean square error against the truth"] < 0.05
    assert figures["the same without alignment (no-trans)"] > 1
    assert (tmp_path / "quilt.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_command_names_the_extra(tmp_path):
    script = "import sys; sys.modules['matplotlib'] = None; from graphquilt.cli import main; main()"
    command = [sys.executable, "-c", script, "demo", "quilt", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "graphquilt[viz]" in done.stderr) == (2, True), done.stderr
