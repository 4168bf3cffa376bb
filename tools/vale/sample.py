"""Text that vale has to find fault with, so that a style which reads nothing is noticed.

What begins like this has no subject. Code is not prose: `told`, ``tells``.
"""


def sample(name: str) -> str:
    """Return what was told.

    Attributes:
        name: the text goes to each member of the list, then to each member of the second list, then
            to each member of the third list and at last to each member of the list of lists.
    """
    # a comment says something
    notified = "told"
    return f"{notified} wants {notified!r} at rest, {name!r} looks up names"
