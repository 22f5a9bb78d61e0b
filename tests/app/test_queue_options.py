"""The options of queues that an app declares."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from interlock import OptionsMismatch, Retry, connect
from interlock.app import App


def test_options_are_declared_with_the_first_send() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    app = App(url, queues={"mail": {"maxsize": 3, "retry": Retry(attempts=2)}})
    later = App(url, queues={"mail": {"maxsize": 3, "maxdead": 7}})

    def post(n: int) -> None: ...

    with connect(url) as client, app, later:
        app.task(queue="mail")(post).send(1)
        options = client.queue("mail").configure()
        assert (options["maxsize"], options["retry"].attempts) == (3, 2)
        task = later.task(queue="mail")(post)
        with pytest.raises(OptionsMismatch, match="'mail' was declared with maxdead=10000"):
            task.send(2)
        client.queue("mail").configure(maxdead=7)
        task.send(3)
        client.queue("mail").drop(force=True)


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        (["mail"], "queues is list"),
        ({"mail": 3}, "queues holds 'mail': 3"),
        ({"mail": {"maxzise": 3}}, r"queues\['mail'\] has an unknown option 'maxzise'"),
        ({"mail": {"maxsize": -3}}, r"queues\['mail'\]: maxsize is -3"),
        ({"mail": {"retry": 3}}, r"queues\['mail'\]: retry is int"),
    ],
)
def test_an_invalid_queue_option_is_reported_when_the_app_is_created(
    queues: Any, words: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        App(queues=queues)
