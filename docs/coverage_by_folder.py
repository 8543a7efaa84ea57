"""Lines that tests run, by folder: `pytest --cov --cov-report=json` first, then this."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

found = json.loads(Path("coverage.json").read_text())["files"]
lines, run = Counter(), Counter()
for name, file in found.items():
    parts = Path(name).parts
    folder = parts[1] + "/" if len(parts) > 2 else "(face and ground)"
    for key in (folder, "all"):
        lines[key] += file["summary"]["num_statements"]
        run[key] += file["summary"]["covered_lines"]
print("| folder | statements | run by tests |\n|---|---|---|")
for folder in sorted(lines):
    print(f"| {folder} | {lines[folder]:,} | {100 * run[folder] / lines[folder]:.0f} % |")
