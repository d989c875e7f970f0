"""Every decoder against arbitrary bytes, arbitrary JSON and spoilt documents: it reads them within its bounds, or
refuses them by the errors that it names. And a decoder that is not on the list of those that are tried.

``TIDEGATE_FUZZ_SECONDS``: for how long :func:`test_fuzz` runs (``make fuzz``); ``TIDEGATE_FUZZ_SEED``: with which seed.
``TIDEGATE_FUZZ_KEEP=1`` puts into the corpus what was answered as nothing was before.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fuzzing.found import decoders
from support.fuzzing.fuzzer import KEPT, Broken, Fuzzer, Report, keep, kept, tried
from support.fuzzing.mutation import MOST_BYTES, mutated
from support.fuzzing.target import Target
from support.fuzzing.targets import ELSEWHERE, TARGETS, covered
from support.hangs import wait_without_limit

MIB = 1024 * 1024
FLAT = 16 * MIB
"""By how much memory may grow from the first half of a run to the second, however long it is."""

KEPT_EACH = 12
"""Inputs of a decoder that the corpus takes by itself, the shortest ones; what has broken one always goes there."""

BY_NAME = {target.name: target for target in TARGETS}
EACH = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


# --- the list ---------------------------------------------------------------------------------------------------------


def test_every_decoder_is_tried_or_it_is_said_why_not() -> None:
    found = decoders()

    assert found >= ELSEWHERE.keys(), "these are gone, or have another name: take them out of ELSEWHERE"
    missing = found - covered() - ELSEWHERE.keys()
    assert not missing, (
        "give them a target in tests/support/fuzzing, or say in ELSEWHERE why nothing hostile comes there"
    )
    assert not covered() & ELSEWHERE.keys()


def test_what_the_targets_name_is_there() -> None:
    for name in covered():
        module, _, inside = name.partition(":")
        folder = "agents/python" if module.startswith("tidegate_agent") else "operator"
        path = Path(__file__).parents[2] / folder / f"{module.replace('.', '/')}.py"
        assert f"def {inside.rpartition('.')[2]}(" in path.read_text(encoding="utf-8"), name


def test_a_decoder_that_is_new_is_found(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(
        "import struct as s\nfrom json import loads as read\nclass A:\n  def b(self, t):\n    return read(t)\n"
        "def c(t):\n  return s.unpack('>i', t)\ndef d(t):\n  return t\ndef decode_it(t):\n  return t\n"
        "def e(t):\n  return MODEL.validate_json(t)\ndef f(t):\n  return [*map(read, t)]\n"
    )

    assert decoders((tmp_path,)) == {"new:A.b", "new:c", "new:decode_it", "new:e", "new:f"}


# --- hostile input ----------------------------------------------------------------------------------------------------


@EACH
def test_what_a_target_begins_with_is_valid(target: Target) -> None:
    """Or the input that is made from it would be refused for the same reason always."""
    assert target.seeds or target.name.startswith("status-")
    for seed in target.seeds:
        target.check(target.decode(seed))


def spoilt(target: Target, seed: int) -> bytes:
    random, pool = Random(seed), [*target.seeds, b""]
    return mutated(random.choice(pool), random, pool)


@EACH
@settings(max_examples=60)
@given(
    made=st.one_of(
        st.integers(0, 2**64),
        st.binary(max_size=400),
        st.text(max_size=200).map(str.encode),
        json_values.map(lambda value: json.dumps(value).encode()),
    )
)
def test_any_bytes_any_text_any_json_and_spoilt_documents(target: Target, made: int | bytes) -> None:
    tried(target, spoilt(target, made) if isinstance(made, int) else made)


@EACH
def test_what_is_nested_deeply_is_read_or_refused(target: Target) -> None:
    """Python ends a recursion after a thousand steps, and inputs at random are hardly ever nested so deeply. It is as
    long as a record of the control topic may be."""
    for nest in (b"[" * 16_000, b'{"":' * 4_000):
        tried(target, nest)
        for seed in target.seeds:
            for spoilt_seed in (seed.replace(b":", b":" + nest, 1), b":".join((*seed.split(b":")[:-1], nest))):
                tried(target, spoilt_seed)


@EACH
def test_the_corpus(target: Target) -> None:
    """What has once broken a decoder, or was answered as nothing before."""
    for data in kept(target):
        tried(target, data)


def test_the_corpus_is_of_targets_that_there_are() -> None:
    assert {folder.name for folder in KEPT.iterdir() if folder.is_dir()} <= BY_NAME.keys()


# --- the long run -----------------------------------------------------------------------------------------------------


def test_fuzz() -> None:
    seconds, seed = float(os.environ.get("TIDEGATE_FUZZ_SECONDS", "1")), int(os.environ.get("TIDEGATE_FUZZ_SEED", "1"))
    fuzzer = Fuzzer(TARGETS, seed)
    wait_without_limit()

    report = fuzzer.run(seconds=seconds, rounds=1)

    folder = Path(__file__).parents[2] / "build" / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.txt").write_text(f"seed {seed}: {report}\n")
    for finding in report.findings:
        keep(finding.target, finding.data, folder)
    if os.environ.get("TIDEGATE_FUZZ_KEEP") == "1":
        for target in TARGETS:
            for data in sorted(fuzzer.new[target.name], key=len)[: max(0, KEPT_EACH - len(kept(target)))]:
                keep(target.name, data)
    assert not report.findings, f"{report}\nthe inputs are in {folder}; put them into {KEPT} with the fix"
    if seconds >= 60:
        assert report.growth <= FLAT, str(report)


def test_a_run_finds_what_breaks_a_decoder() -> None:
    def decode(data: bytes) -> int:
        """As if somebody had forgotten that a number may be missing."""
        found: Any = json.loads(data)
        return int(struct.unpack(">i", bytes(found["four"]))[0])

    target = Target("planted", (), (b'{"four":[0,0,0,1]}',), decode, (ValueError, KeyError, RecursionError))

    report = Fuzzer([target], seed=3).run(rounds=10)

    assert {finding.error.split(":")[0] for finding in report.findings} >= {"planted raises TypeError"}
    with pytest.raises(Broken, match="planted raises error"):
        tried(target, b'{"four":[0]}')


def test_a_run_finds_what_reads_too_much() -> None:
    def check(number: Any) -> None:
        assert number <= 100

    target = Target("planted", (), (b"99",), json.loads, (ValueError, RecursionError), check)

    with pytest.raises(Broken, match="planted reads what it must not: AssertionError"):
        tried(target, b"101")
    assert Fuzzer([target], seed=3).run(rounds=10).findings


def test_memory_that_grows_is_seen() -> None:
    leaked: list[bytes] = []
    target = Target("planted", (), (b"a",), lambda data: leaked.append(bytearray(data * 100)))  # type: ignore[arg-type]

    rounds = [(float(second), 80 * MIB + min(second, 30) * MIB) for second in range(300)]
    assert Report(resident=rounds).growth == 0, "what is taken once is no growth"
    assert Report(resident=[(s, size + int(s) * MIB) for s, size in rounds]).growth > 100 * MIB
    assert Fuzzer([target], seed=1).run(rounds=5).inputs == {"planted": 251} == {"planted": len(leaked)}


def test_input_is_the_same_for_the_same_seed_and_never_large() -> None:
    target = BY_NAME["control-record"]
    one, two = (
        [mutated(target.seeds[0], random, target.seeds) for _ in range(200)] for random in (Random(7), Random(7))
    )

    assert one == two
    assert len({*one}) > 150
    assert max(map(len, one)) <= MOST_BYTES
