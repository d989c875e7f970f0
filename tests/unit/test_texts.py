"""Equal texts are kept once, and no more of them than a limit."""

from __future__ import annotations

import threading

from tidegate.texts import Texts


def text_of(number: int) -> str:
    """A new object each time."""
    return "".join(["group-", str(number)])


def test_equal_texts_become_one() -> None:
    texts = Texts()

    assert texts.once(text_of(1)) is texts.once(text_of(1))
    assert texts.once(text_of(1)) == "group-1"
    assert texts.once(text_of(1)) is not texts.once(text_of(2))


def test_messages_are_left_alone() -> None:
    texts, one, another = Texts(), "".join(["m"] * 129), "".join(["m"] * 129)

    assert texts.once(one) is one
    assert texts.once(another) is another


def test_whoever_sends_ever_new_texts_has_no_more_of_them_kept_than_the_limit() -> None:
    texts = Texts(most=10)

    given = [texts.once(text_of(number)) for number in range(1_000)]

    assert given == [text_of(number) for number in range(1_000)]
    assert len(texts._known) <= 10
    assert texts.once(text_of(999)) is given[-1]


def test_many_threads_are_given_what_they_asked_for() -> None:
    texts, wrong = Texts(most=20), list[str]()

    def ask() -> None:
        for number in range(5_000):
            asked = text_of(number % 50)
            if texts.once(asked) != asked:
                wrong.append(asked)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
