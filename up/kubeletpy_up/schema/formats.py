"""Names, ports, keys, sizes, quantities: each check returns what is wrong in the API's sentences.

The patterns and limits are those of the Kubernetes API conventions ("Names", "Labels").
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache
from typing import Any

from kubeletpy_up.errors import ApiError

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_UNDERSCORED = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_HEADER = "[-A-Za-z0-9]+"

_LABEL_RE = re.compile(_LABEL)
_UNDERSCORED_RE = re.compile(_UNDERSCORED)
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN)
_QUALIFIED_RE = re.compile(_QUALIFIED)
_LABEL_VALUE_RE = re.compile(f"({_QUALIFIED})?")
_CONFIG_KEY_RE = re.compile(_CONFIG_KEY)
_LOCAL_MULTICAST = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}
_LEADING_ZEROS_RE = re.compile(r"(?<![0-9a-fA-F:])0+(?=[0-9])")
_HEADER_RE = re.compile(_HEADER)
_PORT_NAME_RE = re.compile("[-a-z0-9]+")

_MAX_LABEL = 63
_MAX_SUBDOMAIN = 253


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def _pattern(message: str, pattern: str, *examples: str) -> str:
    # Kubernetes' own wording ends each example with a comma: "'a', or 'b', regex used ...".
    reported = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {reported}regex used for validation is '{pattern}')"


def in_range(value: int, low: int, high: int) -> list[str]:
    """An integer within bounds, both included."""
    return [] if low <= value <= high else [f"must be between {low} and {high}, inclusive"]


@lru_cache(maxsize=512)
def dns_label(value: str) -> tuple[str, ...]:
    """RFC 1123 label: names of containers, volumes, namespaces."""
    found = [_too_long(_MAX_LABEL)] if len(value) > _MAX_LABEL else []
    if not _LABEL_RE.fullmatch(value):
        if _SUBDOMAIN_RE.fullmatch(value):
            found.append("must not contain dots")
        else:
            found.append(
                _pattern(
                    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters "
                    "or '-', and must start and end with an alphanumeric character",
                    _LABEL,
                    "my-name",
                    "123-abc",
                )
            )
    return tuple(found)


@lru_cache(maxsize=512)
def dns_subdomain(value: str) -> tuple[str, ...]:
    """RFC 1123 subdomain: most objects' names."""
    return _subdomain(
        value,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
        "'.', and must start and end with an alphanumeric character",
        "example.com",
    )


def search_domain(value: str) -> tuple[str, ...]:
    """RFC 1123 subdomain with underscores: a search path of a resolver."""
    found = (_too_long(_MAX_SUBDOMAIN),) if len(value) > _MAX_SUBDOMAIN else ()
    if _UNDERSCORED_RE.fullmatch(value):
        return found
    rule = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', "
        "'-' or '.', and must start and end with an alphanumeric character"
    )
    return (*found, _pattern(rule, _UNDERSCORED, "example.com"))


def any_case_subdomain(value: str) -> tuple[str, ...]:
    """RFC 1123 subdomain in any case: some drivers' names."""
    return _subdomain(
        value.lower(),
        "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character",
        "Example.com",
    )


def _subdomain(value: str, rule: str, example: str) -> tuple[str, ...]:
    found = [_too_long(_MAX_SUBDOMAIN)] if len(value) > _MAX_SUBDOMAIN else []
    if not _SUBDOMAIN_RE.fullmatch(value):
        found.append(_pattern(rule, _SUBDOMAIN, example))
    return tuple(found)


@lru_cache(maxsize=512)
def qualified_name(value: str) -> tuple[str, ...]:
    """A label's or annotation's key: ``[PREFIX/]NAME``."""
    found: list[str] = []
    prefix, separator, name = value.rpartition("/")
    if "/" in prefix:
        return (
            _pattern(
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and "
                "must start and end with an alphanumeric character",
                _QUALIFIED,
                "MyName",
                "my.name",
                "123-abc",
            )
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    if separator:
        if not prefix:
            found.append("prefix part must be non-empty")
        else:
            found += ["prefix part " + message for message in dns_subdomain(prefix)]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > _MAX_LABEL:
        found.append("name part " + _too_long(_MAX_LABEL))
    if not _QUALIFIED_RE.fullmatch(name):
        found.append(
            "name part "
            + _pattern(
                "must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
                "with an alphanumeric character",
                _QUALIFIED,
                "MyName",
                "my.name",
                "123-abc",
            )
        )
    return tuple(found)


@lru_cache(maxsize=512)
def label_value(value: str) -> tuple[str, ...]:
    """A label's value; may be empty."""
    found = [_too_long(_MAX_LABEL)] if len(value) > _MAX_LABEL else []
    if not _LABEL_VALUE_RE.fullmatch(value):
        found.append(
            _pattern(
                "a valid label must be an empty string or consist of alphanumeric characters, '-', "
                "'_' or '.', and must start and end with an alphanumeric character",
                f"({_QUALIFIED})?",
                "MyValue",
                "my_value",
                "12345",
            )
        )
    return tuple(found)


def port_number(value: int) -> list[str]:
    """A port number is from 1 to 65535."""
    return in_range(value, 1, 65535)


def port_name(value: str) -> list[str]:
    """IANA service name: at most 15 characters."""
    found = [_too_long(15)] if len(value) > 15 else []
    if not _PORT_NAME_RE.fullmatch(value):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        found.append("must contain at least one letter (a-z)")
    if "--" in value:
        found.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def environment_name(value: str) -> list[str]:
    """Printable ASCII without ``=`` (KEP-4369)."""
    if all(" " <= char <= "~" and char != "=" for char in value):
        return []
    return [
        "a valid environment variable name must consist only of printable ASCII characters "
        "other than '='"
    ]


def config_key(value: str) -> list[str]:
    """A key of a ConfigMap or Secret: it may become a file's name."""
    found = [_too_long(_MAX_SUBDOMAIN)] if len(value) > _MAX_SUBDOMAIN else []
    if not _CONFIG_KEY_RE.fullmatch(value):
        found.append(
            _pattern(
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                _CONFIG_KEY,
                "key.name",
                "KEY_NAME",
                "key-name",
            )
        )
    if value in (".", ".."):
        found.append(f"must not be '{value}'")
    elif value.startswith(".."):
        found.append("must not start with '..'")
    return found


def header_name(value: str) -> list[str]:
    """An HTTP header's name."""
    if _HEADER_RE.fullmatch(value):
        return []
    message = "a valid HTTP header must consist of alphanumeric characters or '-'"
    return [_pattern(message, _HEADER, "X-Header-Name")]


def ip_address(value: str) -> list[str]:
    """IPv4 or IPv6, in a form that has only one reading (gate StrictIPCIDRValidation)."""
    zeros = False
    address = _parsed(value)
    if address is None:
        address = _parsed(_LEADING_ZEROS_RE.sub("", value))
        zeros = True
    if address is None or "%" in value:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    found = ["must not have leading 0s"] if zeros else []
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped and not zeros:
        found.append("must not be an IPv4-mapped IPv6 address")
    return found


def cidr(value: str) -> list[str]:
    """A range such as 10.9.8.0/24, in a form that has only one reading, without bits of a host."""
    address, slash, bits = value.partition("/")
    network = None
    if slash and bits.isascii() and bits.isdigit() and "%" not in address:
        with contextlib.suppress(ValueError):
            plain = _LEADING_ZEROS_RE.sub("", address)
            network = ipaddress.ip_network(f"{plain}/{bits}", strict=False)
    if network is None:
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    parsed = _parsed(address)
    if parsed is None or (len(bits) > 1 and bits.startswith("0")):
        return ["must not have leading 0s in IP or prefix length"]
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        return ["must not have an IPv4-mapped IPv6 address"]
    if parsed != network.network_address:
        return ["must not have bits set beyond the prefix length"]
    return []


def special_address(value: str) -> list[str]:
    """Why a valid address can't be an endpoint that others use."""
    address = ipaddress.ip_address(value)
    found = []
    if address.is_unspecified:
        found.append(f"may not be unspecified ({value})")
    if address.is_loopback:
        found.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        found.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if address.is_multicast and address in _LOCAL_MULTICAST[address.version]:
        found.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return found


def _parsed(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        return None


def relative_path(value: str) -> list[str]:
    """A path below something: not absolute, no ``..``."""
    found = ["must be a relative path"] if value.startswith("/") else []
    return found + no_backsteps(value)


def no_backsteps(value: str) -> list[str]:
    """A path without ``..``."""
    return ["must not contain '..'"] if ".." in value.split("/") else []


# Sizes of one object, in whatever form it is sent.

BODY_LIMIT = 3 << 20
"""Maximum size of a request's body, in bytes."""
MAX_VALUES = 300_000
"""Maximum number of values in one body or patched object: each costs some microseconds. The
largest pods that fit into a body (forty thousand mounts) have half as many.
"""


LARGE = 16 << 10
"""Size in bytes above which a thread handles a body, an object or a list."""


def check_count(count: int) -> None:
    """Refuse as many values if that is more than MAX_VALUES. Raises ApiError 413."""
    if count > MAX_VALUES:
        message = f"Request entity too large: limit is {MAX_VALUES} values"
        raise ApiError(413, "RequestEntityTooLarge", message)


def check_values(sent: Any) -> None:
    """Refuse an object with more values than MAX_VALUES. Raises ApiError 413."""
    waiting, seen = [sent], 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            seen += len(value)
            check_count(seen)
            waiting.extend(value.values() if isinstance(value, dict) else value)


# Quantities as an API server writes them back: ``1000m`` as ``1``, ``1024Mi`` as ``1Gi``. One
# value has one spelling, so that what a client applied compares equal to what is stored.

REGEX = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
FORMAT_ERROR = f"quantities must match the regular expression '{REGEX}'"
SUFFIX_ERROR = "unable to parse quantity's suffix"

_SHAPE = re.compile(r"^([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_EXPONENT = re.compile(r"^[eE][-+]?[0-9]+$")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_NAMES = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_MAX = Decimal(2**63 - 1)
_MAX_LENGTH = 64


@lru_cache(maxsize=1024)
def read(text: str) -> tuple[Decimal, str]:
    """Read a quantity: its value, and its family of suffixes ("decimal", "binary", "exponent").

    Raises:
        ValueError: not a quantity, in the API server's words.
    """
    text = text.strip()
    match = _SHAPE.match(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError(FORMAT_ERROR)
    sign, digits, suffix = match.groups()
    with localcontext() as context:
        context.prec = 200
        number = Decimal(sign + digits)
        if suffix in _DECIMAL:
            value, family = number.scaleb(_DECIMAL[suffix]), "decimal"
        elif suffix in _BINARY:
            value, family = number * 1024 ** (_BINARY.index(suffix) + 1), "binary"
        elif _EXPONENT.match(suffix) and len(suffix) <= 5:
            exponent = max(-100, min(100, int(suffix[1:])))
            value, family = number.scaleb(exponent), "exponent"
        else:
            raise ValueError(SUFFIX_ERROR)
        # Finer than a billionth is rounded up, larger than 2^63-1 is capped: as the API does.
        value = value.quantize(Decimal("1e-9"), rounding=ROUND_CEILING)
        return max(-_MAX, min(_MAX, value)), family


@lru_cache(maxsize=1024)
def canonical(text: str) -> str:
    """The one spelling of a quantity.

    Raises:
        ValueError: not a quantity.
    """
    value, family = read(text)
    if value == 0:
        return "0"
    if family == "binary" and abs(value) >= 1024 and value == value.to_integral_value():
        return _binary(int(value))
    return _decimal(value, exponent_form=family == "exponent")


def _binary(value: int) -> str:
    power = 0
    while power < len(_BINARY) and value % 1024 == 0:
        value //= 1024
        power += 1
    return f"{value}{_BINARY[power - 1] if power else ''}"


def _decimal(value: Decimal, *, exponent_form: bool) -> str:
    mantissa, exponent = int(value.scaleb(9)), -9
    while mantissa % 1000 == 0 and exponent < 18:
        mantissa //= 1000
        exponent += 3
    if exponent_form:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_NAMES[exponent]}"


def milli(text: str) -> int:
    """Thousandths, rounded up. Raises ValueError."""
    return int((read(text)[0] * 1000).to_integral_value(ROUND_CEILING))
