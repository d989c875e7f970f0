"""Which resets were executed: records of kind ``run``, so that none is executed twice (``agents/contract``).

They are on the Kafka cluster whose offsets were changed, as those are: they outlive the policy that asked for the
reset, its status, and the Kubernetes cluster. Calls block as the port's do. Those without a policy vouch for what an
undo of a deleted ``OffsetReset`` goes by (:func:`of_reset`).

How to use it, before a reset that a policy asks for by an id changes anything::

    key = RunKey(namespace, policy_name, reset_id)
    run = begin(control, key, Run(uid, started_ms))
    if run.uid == uid and run.outcome is None: ...  # it is ours to execute, now or again after a crash
    else: ...                                       # it was executed: by us and it is over, or by somebody else

and ``control.note_runs({key: replace(run, outcome=..., finished_ms=...)})`` once it is over.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.control.ports import ControlTopics
from tidegate.control.records import Run, RunKey


def of_reset(namespace: str, name: str) -> RunKey:
    """Of an ``OffsetReset`` that has ended, by its name, whoever asked for it."""
    return RunKey(namespace, "", name)


def executed(control: ControlTopics, key: RunKey) -> Run | None:
    """What is known of the reset ``key``; ``None``: it was never begun, as far as this control topic knows.

    See ``RunKey`` for what to put into it. ``Run.outcome`` is ``None`` for one that is being executed, or whose process
    died. Raises ``KafkaFailure``s: then nothing is known, and nothing may be begun.
    """
    return control.read().runs.get(key)


def begin(control: ControlTopics, key: RunKey, run: Run) -> Run:
    """Write that ``key`` is now being executed by ``run``, unless it was executed already; the run that has it.

    Go on only where the answer's ``uid`` is ``run``'s and it has no ``outcome``. Of several that begin at once the
    log's order lets one have it. Calling it again is harmless as long as ``uid`` is the same, also after
    ``Unavailable``, which does not say whether the record was written: so keep ``uid`` where a successor finds it,
    before this is called.

    Creates the topics where they are missing (``ControlTopics.ensure``). Raises ``Unavailable``, ``Fenced`` where this
    process was replaced, ``NotAuthorized``, and ``Refused`` where a text is not one of the contract's.
    """
    known = executed(control, key)
    if known is not None:
        return known
    if not control.exist:
        control.ensure()
    control.note_runs({key: run})
    # Somebody else's may have come before ours. A topic that was lost meanwhile has neither: begin again.
    return executed(control, key) or begin(control, key, run)


def replace_known(control: ControlTopics, known: Mapping[RunKey, Run], by: Mapping[RunKey, Run]) -> None:
    """Write ``by`` instead of what was ``known``, but where something else was written since.

    Raises ``KafkaFailure``s.
    """
    now = control.read().runs
    still = {key: run for key, run in by.items() if now.get(key) == known.get(key)}
    if still:
        control.note_runs(still)


def forget(control: ControlTopics, key: RunKey, run: Run) -> None:
    """Nothing is known of ``run`` any more; where another one has taken its key meanwhile, nothing happens.

    Raises ``KafkaFailure``s.
    """
    known = executed(control, key)
    if known is not None and known.uid == run.uid:
        control.note_runs({key: None})
