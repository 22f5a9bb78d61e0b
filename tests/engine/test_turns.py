"""The naive model, with which servers are compared, grants by the turns of groups (clause 28).

INTERLOCK_SEED repeats a run. More of them: `python -m tests.engine.naive.turns`.
"""

from __future__ import annotations

import pytest

from tests import seeds
from tests.engine.naive import turns

SCHEDULES = 30


@pytest.mark.watchdog(300)
def test_no_grant_of_random_schedules_is_at_the_expense_of_one_whose_turn_it_is() -> None:
    seed = seeds.seed()
    for one in range(seed, seed + SCHEDULES):
        turns.check_schedule(one)


def test_groups_share_equally_beside_one_that_puts_a_hundred_times_as_much() -> None:
    turns.check_shares(seeds.seed())


@pytest.mark.watchdog(300)
def test_groups_share_a_limit_equally_beside_one_that_puts_more() -> None:
    turns.check_shares(seeds.seed(), "bank=3", LIMIT="bank")


def test_groups_with_weights_are_within_one_turn_of_their_shares() -> None:
    turns.check_weights(seeds.seed())


@pytest.mark.parametrize("limited", [0, 1], ids=["without limits", "at a limit"])
def test_a_message_of_a_quiet_group_waits_for_one_turn_of_each_other(limited: int) -> None:
    turns.check_waits(seeds.seed() // 2 * 2 + limited)


def test_no_kind_of_consumer_starves_messages_that_another_kind_serves_too() -> None:
    turns.check_kinds(seeds.seed())


def test_a_group_whose_messages_share_a_key_has_its_turn_whenever_one_is_ready() -> None:
    turns.check_serial_keys(seeds.seed())


def test_a_message_of_two_busy_names_starts_at_last_beside_groups() -> None:
    turns.check_keepers(seeds.seed())
