"""Reads which metrics and which flags Go sources register. Pure.

Only what is written out in the source is found: a name or label that a function puts together is
shown as the expression, with a question mark before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_CONSTANT = re.compile(r'(\w+)\s*(?:string)?\s*=\s*"([^"]*)"')
_OPTIONS = re.compile(r"\b(Counter|Gauge|Histogram|Summary)Opts\{(.*?)\n\s*\}", re.DOTALL)
_LABELS = re.compile(r",?\s*\[\]string\{([^}]*)\}")
_LABEL = re.compile(r'"[^"]*"|[A-Za-z]\w*')
_FLAG = re.compile(r'Var(?:P|F)?\([^"\n]*?,\s*"([a-z0-9-]+)"')
_MAP_FLAG = re.compile(r'\bVar\([^\n]*?, "([a-z0-9-]+)"')
_GLOBAL_FLAG = re.compile(r'register(?:Deprecated)?\(global, local, ("?[\w.-]+"?)')
_ELSEWHERE = {"KubeletSubsystem": "kubelet"}
"""Constants of other packages."""


def metrics(package: Iterable[str]) -> dict[str, str]:
    """The metrics of a Go package by full name, each with type, labels and stability level.

    ``package``: the texts of its files; constants of one are used in others.
    """
    texts = list(package)
    constants = {name: value for text in texts for name, value in _CONSTANT.findall(text)}
    found = {}
    for text in texts:
        for options in _OPTIONS.finditer(text):
            fields = dict(re.findall(r"\b(\w+):\s*([^\n]*?),?\s*(?:\n|$)", options.group(2)))
            parts = (fields.get(key, '""') for key in ("Namespace", "Subsystem", "Name"))
            name = "_".join(filter(None, (_value(part, constants) for part in parts)))
            level = fields.get("StabilityLevel", "").rpartition(".")[2].strip('"')
            after = _LABELS.match(text, options.end())
            tokens = _LABEL.findall(after.group(1)) if after else []
            labels = "|".join(_value(word, constants) for word in tokens)
            found[name] = " ".join(filter(None, (options.group(1).lower(), labels, level)))
    return found


def flags(texts: Iterable[str]) -> dict[str, str]:
    """The flags that some Go files register, by name without dashes."""
    found = set()
    for text in texts:
        found |= {*_FLAG.findall(text), *_MAP_FLAG.findall(text)}
        found |= {_value(each, {}).replace("_", "-") for each in _GLOBAL_FLAG.findall(text)}
    return dict.fromkeys(found, "flag")


def _value(expression: str, constants: Mapping[str, str]) -> str:
    if expression.startswith('"') and expression.count('"') == 2:
        return expression.strip('"')
    last = expression.rpartition(".")[2]
    return constants.get(last) or _ELSEWHERE.get(last) or f"?{expression}"
