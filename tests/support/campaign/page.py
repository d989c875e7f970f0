"""The campaign's page: what was tried, what went wrong, and what came of it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from support.campaign.outcome import Ended, Outcome, Truth
from support.campaign.schedule import FaultKind

SUCCEEDED = "Succeeded"

HEAD = """\
# The campaign: random schedules of resets, pauses and faults

`make campaign SEEDS=0-49` carries out the schedules of these seeds and rewrites this page from
[campaign.jsonl](campaign.jsonl), which has a line for each trial. A seed that was already tried at this commit is left
out. The commit is the last one that changed what the trials run: the modules, the clients and the brokers. Comments and
docstrings do not count. Of each seed only the newest trial is kept: a seed that finds a defect is tried again once that
is fixed, and the changelog says what was found.

A schedule is drawn from its seed alone: a kind of client and of group, how its application commits, and some steps.
Each step asks for up to three resets at once, may pause partitions meanwhile, and has faults at random moments.
Each reset is carried out by a process of its own, on three brokers. The timing of clients and brokers differs from run
to run: the same seed gives the same schedule, but not always the same history. From seed 1000 on, all of the tests'
clients and ways to commit are drawn; below that, those of the first campaigns. librdkafka's exactly-once
applications are drawn at `read_uncommitted` only: at `read_committed` a consumer that is rebalanced twice with a
transaction open begins at its `auto.offset.reset` ([guarantees](../explanation/guarantees.md)). kafkajs's consumers
need Node.js and the npm registry; where `node` is missing, seeds that draw them are left out.

Each trial's history is judged by rules that know nothing of Tidegate ([format and
rules](../../tests/support/HISTORY.md)). A verdict is *untrue* if the history breaks one of them: a record was lost, an
offset moved although nobody had asked for it, or what a reset said of itself (`Succeeded`, `RolledBack`, `Failed`) is
contradicted by what the consumers received and committed. It is *broken* if the trial did not finish, for example
because a test consumer did not read to the end in time on an overloaded machine.
"""


def page(outcomes: Iterable[Outcome]) -> str:
    """The whole page."""
    tried = list(outcomes)
    parts = [HEAD, _summary(tried), "## By client and way", _by_client_and_way(tried)]
    parts += ["## By application and kind of group", _by_group(tried), "## By fault", _by_fault(tried)]
    parts += ["## Resets that did not succeed", _not_succeeded(tried)]
    parts += ["## Verdicts that are untrue or broken", _untrue(tried)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _summary(tried: Sequence[Outcome]) -> str:
    runs = [run for outcome in tried for run in outcome.runs if run.phase]
    faults = sum(len(outcome.struck) for outcome in tried)
    truths = Counter(outcome.truth for outcome in tried)
    phases = Counter(run.phase for run in runs)
    ended = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items(), key=lambda item: -item[1]))
    said = (
        f"**{len(tried)} trials**, {len(runs)} resets ({ended or 'none'}), {faults} faults that struck: "
        f"{truths[Truth.TRUE]} verdicts true, {truths[Truth.UNTRUE]} untrue, {truths[Truth.BROKEN]} broken. "
        f"Records read again for a reason that at-least-once allows: {sum(o.reread for o in tried)}."
    )
    commits: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in tried:
        commits[outcome.commit].append(outcome)
    rows = [
        (commit, _seeds(of_commit), min(o.at for o in of_commit)[:10], max(o.at for o in of_commit)[:10])
        for commit, of_commit in sorted(commits.items(), key=lambda item: max(o.at for o in item[1]))
    ]
    return f"{said}\n\n{_table(('commit', 'seeds', 'from', 'to'), rows)}"


def _seeds(outcomes: Iterable[Outcome]) -> str:
    """Runs of consecutive seeds: ``0-9, 12``."""
    spans: list[list[int]] = []
    for seed in sorted(outcome.seed for outcome in outcomes):
        if spans and spans[-1][1] == seed - 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _by_client_and_way(tried: Sequence[Outcome]) -> str:
    """A trial counts in the row of each way that its resets took."""
    runs: dict[tuple[str, str], list[tuple[Outcome, Ended]]] = defaultdict(list)
    for outcome in tried:
        for run in outcome.runs:
            runs[outcome.client, run.way or "none"].append((outcome, run))
    rows = []
    for (client, way), ended in sorted(runs.items()):
        phases = Counter(run.phase for _, run in ended)
        faults = sum(len(outcome.struck) for outcome in {o.seed: o for o, _ in ended}.values())
        untrue = len({outcome.seed for outcome, _ in ended if outcome.truth is not Truth.TRUE})
        rows.append(
            (
                client,
                way,
                str(len({outcome.seed for outcome, _ in ended})),
                str(phases[SUCCEEDED]),
                str(phases["RolledBack"]),
                str(phases["Failed"]),
                str(phases[""]),
                str(sum(run.redone for _, run in ended)),
                str(faults),
                str(untrue),
            )
        )
    head = ("client", "way", "trials", "Succeeded", "RolledBack", "Failed", "not begun or no end", "redone", "faults",
            "untrue or broken")  # fmt: skip
    return _table(head, rows)


def _by_group(tried: Sequence[Outcome]) -> str:
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in tried:
        groups[outcome.application, outcome.group].append(outcome)
    rows = [
        (application, group, str(len(of_group)), str(sum(o.truth is not Truth.TRUE for o in of_group)))
        for (application, group), of_group in sorted(groups.items())
    ]
    return _table(("application", "group", "trials", "untrue or broken"), rows)


def _by_fault(tried: Sequence[Outcome]) -> str:
    rows = []
    for kind in FaultKind:
        struck = [outcome for outcome in tried if kind in outcome.struck]
        times = sum(outcome.struck.count(kind) for outcome in struck)
        rows.append((str(kind), str(times), str(len(struck)), str(sum(o.truth is not Truth.TRUE for o in struck))))
    return _table(("fault", "times", "trials", "untrue or broken"), rows)


def _not_succeeded(tried: Sequence[Outcome]) -> str:
    """Of a trial that is true, the history shows that nothing was changed where a reset says so."""
    rows = [
        (
            str(outcome.seed),
            outcome.client,
            run.way,
            run.phase or "(none)",
            run.reason,
            run.message,
            "yes" if outcome.truth is Truth.TRUE else f"{outcome.truth}: see below",
        )
        for outcome in tried
        for run in outcome.runs
        if run.phase != SUCCEEDED
    ]
    head = ("seed", "client", "way", "phase", "reason", "message", "nothing was changed, by the history")
    return _table(head, rows) if rows else "None."


def _untrue(tried: Sequence[Outcome]) -> str:
    said = []
    for outcome in (o for o in tried if o.truth is not Truth.TRUE):
        kept = [f"* its history: `{outcome.history}`"] if outcome.history else []
        schedule = outcome.schedule.partition(": ")[2]
        findings = [f"* {_one_line(finding)}" for finding in outcome.findings]
        said.append("\n".join([f"### Seed {outcome.seed}, {outcome.truth}, {outcome.commit}", "", schedule, "",
                               *findings, *kept]))  # fmt: skip
    return "\n\n".join(said) or "None."


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_one_line(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
