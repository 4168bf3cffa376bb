"""CRI calls over gRPC, each declared by its method of the protocol. Must never decide when to call.

``stop_container = unary(RuntimeService.stop_container, target="container_id", own="timeout")`` has
that method's signature. Its name gives the names of the call and of both messages, its arguments
are the fields of the request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from functools import wraps
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast

from kubeletpy.remote.calls import ServiceCalls
from kubeletpy.remote.connection import MAX_RECEIVE
from kubeletpy.remote.generated import api_pb2 as cri

Method = TypeVar("Method", bound=Callable[..., Any])

MOST_STREAMED = 4 * MAX_RECEIVE
"""Bytes of a list that is streamed: beyond, it is requested in parts. A runtime whose stream never
ends would fill the memory otherwise."""


class Client(Protocol):
    """A client whose methods are declared calls."""

    services: Mapping[str, ServiceCalls]
    """The services, by name of the protocol."""


class _Declared:
    """The properties of a call that its protocol method declares."""

    def __init__(self, like: Callable[..., Any]) -> None:
        service, _, name = like.__qualname__.partition(".")
        code = like.__code__
        self.service = service
        self.call = "".join(part.capitalize() for part in name.split("_"))
        self.response = getattr(cri, f"{self.call}Response")
        self._request = getattr(cri, f"{self.call}Request")
        self._fields = code.co_varnames[1 : code.co_argcount]

    def request(self, args: tuple[Any, ...], fields: Mapping[str, Any]) -> Any:
        """The request; a method whose only argument is ``request`` is passed it."""
        fields = {**dict(zip(self._fields, args, strict=False)), **fields}
        return fields["request"] if "request" in fields else self._request(**fields)


def unary(
    like: Method,
    *,
    answer: str = "",
    target: str = "",
    own: str = "",
    check: Callable[[Any], str] | None = None,
    believe: Callable[[Any], Any] = lambda value: value,
) -> Method:
    """A call with one answer.

    Args:
        like: the protocol's method.
        answer: the field that is returned, which must be set unless it is repeated; empty: the
            message, or None if it never has any field.
        target: the field of the request that names in errors what the call is about.
        own: the field of the request that is a timeout, in seconds.
        check: returns what is wrong with the message.
        believe: leaves out of the value what can't be true.
    """
    declared = _Declared(like)
    fields = declared.response.DESCRIPTOR.fields_by_name
    value_of: Callable[[Any], Any] = attrgetter(answer) if answer else _message_or_none
    if answer and not fields[answer].is_repeated:
        check = check or _is_set(answer)

    @wraps(like)
    async def method(self: Client, *args: Any, **kwargs: Any) -> Any:
        request = declared.request(args, kwargs)
        message = await self.services[declared.service].unary(
            declared.call,
            request,
            declared.response,
            own=getattr(request, own) if own else 0.0,
            target=attrgetter(target)(request) if target else "",
            check=check,
        )
        return believe(value_of(message))

    return cast(Method, method)


def streamed(
    like: Method, items: str, believe: Callable[[Any, Any], Any] = lambda items, filter: items
) -> Method:
    """A list in pieces, of which the field ``items`` is yielded one by one.

    ``believe`` leaves out of a piece what can't be true; its second argument is the list's filter.
    """
    declared = _Declared(like)

    @wraps(like)
    async def method(self: Client, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        request = declared.request(args, kwargs)
        selection = request.filter if "filter" in request.DESCRIPTOR.fields_by_name else None
        async for message in self.services[declared.service].stream(
            declared.call, request, declared.response, most=MOST_STREAMED
        ):
            for item in believe(getattr(message, items), selection):
                yield item

    return cast(Method, method)


def _is_set(field: str) -> Callable[[Any], str]:
    def check(message: Any) -> str:
        by_presence = message.DESCRIPTOR.fields_by_name[field].message_type is not None
        found = message.HasField(field) if by_presence else getattr(message, field)
        return "" if found else f"{field} not set"

    return check


def _message_or_none(message: Any) -> Any:
    return message if message.DESCRIPTOR.fields else None
