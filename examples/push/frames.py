"""Frames of a WebSocket: JSON objects, told apart by their ``type``."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

Name = Annotated[str, Meta(min_length=1, max_length=16)]
Number = Annotated[int, Meta(ge=0, le=2**53)]  # all that a browser's numbers hold exactly
Ref = Annotated[str, Meta(min_length=1, max_length=40)]
Text = Annotated[str, Meta(max_length=1000)]

# -- From an app -------------------------------------------------------------------------------


class Login(Struct, tag="login", tag_field="type"):
    """Always the first. ``after`` is the number of the last message that the app has shown."""

    user: Name
    token: Annotated[str, Meta(max_length=32)]
    app_id: Annotated[int, Meta(ge=0, lt=2**32)] = 0
    after: Number = 0
    background: bool = False


class Send(Struct, tag="send", tag_field="type"):
    """A message to somebody. It is sent again, with the same ``ref``, until ``Sent`` has come."""

    to: Name
    text: Text
    ref: Ref


class Seen(Struct, tag="seen", tag_field="type"):
    """All messages up to this one were shown."""

    number: Number


class Background(Struct, tag="background", tag_field="type"):
    """The app is not looked at any more: badges instead of messages."""


class Foreground(Struct, tag="foreground", tag_field="type"):
    """It is looked at again: what came behind ``after``, and messages as they come."""

    after: Number


class Logout(Struct, tag="logout", tag_field="type"):
    """The user leaves this device."""


FromApp = Login | Send | Seen | Background | Foreground | Logout

# -- To an app ---------------------------------------------------------------------------------


class Welcome(Struct, tag="welcome", tag_field="type"):
    """The login is done. ``gateways`` are the URLs to try when this one is gone.

    Numbers of messages are those of ``service``: another one has not the same.
    """

    gateway: str
    gateways: list[str]
    service: str


class Sent(Struct, tag="sent", tag_field="type"):
    """The message with this ``ref`` is in the queue: it will not be lost."""

    ref: str


class Message(Struct, tag="message", tag_field="type"):
    """A message; the numbers of one user's rise."""

    number: int
    sender: str
    text: str


class Missed(Struct, tag="missed", tag_field="type"):
    """Messages that came while the app was not looked at; ``last``: these are all of them."""

    messages: list[Message]
    last: bool


class Badge(Struct, tag="badge", tag_field="type"):
    """The number of messages that were not shown, as a telephone draws it on the app's icon."""

    unread: int


class Online(Struct, tag="online", tag_field="type"):
    """Users who are connected: the user, the gateway, and whether the app is in the background."""

    users: list[tuple[str, str, bool]]


ToApp = Welcome | Sent | Message | Missed | Badge | Online

encode = msgspec.json.encode
from_app = msgspec.json.Decoder[FromApp](FromApp)
to_app = msgspec.json.Decoder[ToApp](ToApp)
