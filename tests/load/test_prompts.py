from __future__ import annotations

import json

import pytest

from workers.load.prompts import FORMS, body
from workers.traces.workload import Ask


def prompt(ask: Ask, form: str) -> list[int] | str:
    made: list[int] | str = json.loads(body(ask, form=form, vocabulary=5000, model="m"))["prompt"]
    return made


@pytest.mark.parametrize("form", FORMS)
def test_prompts_share_what_their_segments_share(form: str) -> None:
    one, other = (prompt(Ask(0.0, ((7, 40), (name, 9)), 3), form) for name in (1, 2))
    shared = prompt(Ask(0.0, ((7, 40),), 3), form)
    assert one != other
    assert one[: len(shared)] == other[: len(shared)] == shared


@pytest.mark.parametrize("form", FORMS)
def test_another_salt_makes_prompts_of_the_same_form_that_share_nothing_with_those_before(form: str) -> None:
    def prompts(salt: int) -> list[list[int] | str]:
        asks = [Ask(0.0, ((7, 40), (name, 9)), 3) for name in (1, -2)]
        made = [body(ask, form=form, vocabulary=5000, model="m", salt=salt) for ask in asks]
        return [json.loads(each)["prompt"] for each in made]

    plain, (one, other), again = prompts(0), prompts(1), prompts(1)
    assert [one, other] == again != plain
    assert one[:40] == other[:40] != plain[0][:40]
    assert one != other
    words = [len(each.split()) if isinstance(each, str) else len(each) for each in (one, plain[0])]
    assert words[0] == words[1]


def test_each_form_has_a_token_for_every_token() -> None:
    ask = Ask(0.0, ((7, 40), (1, 9)), 3)
    assert len(prompt(ask, "ids")) == len(prompt(ask, "letters")) == 49
    assert len(str(prompt(ask, "words")).split()) == 49
    assert all(int(token) < 5000 for token in prompt(ask, "ids"))


def test_an_answer_of_the_whole_length_is_asked_for() -> None:
    asked = json.loads(body(Ask(0.0, ((7, 40),), 33), form="ids", vocabulary=5000, model="m"))
    assert (asked["max_tokens"], asked["min_tokens"], asked["ignore_eos"]) == (33, 33, True)
    assert (asked["model"], asked["stream"]) == ("m", True)
