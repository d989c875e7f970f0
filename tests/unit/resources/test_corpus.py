from collections import Counter

import pytest

from corpus.reading import PLURALS, Case, read_cases
from tidegate.policy.template import reset_name
from tidegate.resources import spark_conf
from tidegate.resources.base import InvalidResource, Problem, parse_spec, parse_update
from tidegate.resources.offset_backup import OffsetBackupSpec
from tidegate.resources.offset_mirror import OffsetMirrorSpec
from tidegate.resources.offset_reset import OffsetResetSpec
from tidegate.resources.policy import OffsetResetPolicySpec

VALID = read_cases("valid")
INVALID = read_cases("invalid")


def parse(case: Case) -> None:
    """What the operator finds: the models, and beside them the list of Spark's settings. Raises ``InvalidResource``."""
    if case.replaces is None:
        spec = parse_spec(case.spec, case.resource)
    else:
        spec = parse_update(case.spec, case.replaces, case.resource)
    if isinstance(spec, OffsetResetPolicySpec) and spec.reset is not None:
        reset_name(case.resource["metadata"]["name"], spec.reset.id)
    with_spark = OffsetBackupSpec | OffsetMirrorSpec | OffsetResetPolicySpec | OffsetResetSpec
    if isinstance(spec, with_spark) and spec.spark is not None:
        refused = spark_conf.refusals(spec.spark.spark_conf)
        if refused:
            raise InvalidResource(tuple(Problem("spec.spark.sparkConf", why) for why in refused))


@pytest.mark.parametrize("case", VALID, ids=str)
def test_valid_resources_are_taken(case: Case) -> None:
    parse(case)


@pytest.mark.parametrize("case", INVALID, ids=str)
def test_invalid_resources_are_refused_with_what_to_do(case: Case) -> None:
    assert case.expect is not None, "the first line must be '# expect: ...'"
    if case.replaces is not None:
        parse_spec(case.spec, case.replaces)

    with pytest.raises(InvalidResource) as caught:
        parse(case)

    assert case.expect[0] in str(caught.value)


def test_the_corpus_covers_all_kinds() -> None:
    for cases, least in ((VALID, 30), (INVALID, 60)):
        kinds = Counter(case.kind for case in cases)
        assert set(kinds) == set(PLURALS)
        assert sum(kinds.values()) >= least
