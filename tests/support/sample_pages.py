"""Writes samples of the pages that commands make, of made-up groups, for the site: ``python -m support.sample_pages
FOLDER``."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from support.audited import a_report
from support.planned_runs import PLANNED, a_run, some_evidence
from tidegate.cli import audit_page, plan_page
from tidegate.cli.review import review


def write(folder: Path) -> None:
    run = a_run(evidence=some_evidence())
    plan = plan_page.page(review("payments", run.request.run_id, run, PLANNED + timedelta(minutes=3)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.html").write_text(plan, encoding="utf-8")
    (folder / "audit.html").write_text(audit_page.page(a_report()), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
