"""Refuses credentials in a URL: every setting of a recipe is written to run.json, plan.json, profile.json and pages."""

import re
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl

from surefoot.errors import RecipeError

_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_USER = re.compile(r"(?<=://)(?:[^/?#\s]*@|[^/?#\s:@]+:(?!\d*(?:/|$))\S*@)")
"""The user and the password. A secret key of S3 may contain a slash; a port is digits."""
_SECRET = re.compile(r"(^|[-_.])(key|keyid|apikey|sig|signature|token|secret|password|passwd|pwd|credential)$", re.I)
_CONTAINERS = ("abfs:", "abfss:", "wasb:", "wasbs:")
"""Azure writes the container where others write the user."""


def refuse_credentials(values: Mapping[str, object]) -> None:
    """Raises if a value is text with a URL that has a user, a password or a secret in its query."""
    for name, value in values.items():
        found = list(_with_credentials(value)) if isinstance(value, str) else []
        if (
            not found and name == "mirror" and "?" in str(value)
        ):  # a store needs no query, whatever its parts are called
            found = [str(value)]
        for url in found:
            raise RecipeError(
                f"{name}={_shown(url)} has a user, a password or a query, and run.json, plan.json and pages would "
                "store them; put credentials into the environment, for example AWS_ACCESS_KEY_ID, AWS_PROFILE and "
                "AWS_ENDPOINT_URL"
            )


def without_credentials(text: str) -> str:
    """The text with every such URL cut down to what is no secret."""
    for url in _with_credentials(text):
        text = text.replace(url, _shown(url))
    return text


def _with_credentials(text: str) -> Iterator[str]:
    for url in _URL.findall(text):
        if any(_has_user(part) or _has_secret_query(part) for part in url.split("::")):
            yield url


def _has_user(url: str) -> bool:
    found = _USER.search(url)
    return found is not None and not (url.lower().startswith(_CONTAINERS) and ":" not in found[0])


def _has_secret_query(url: str) -> bool:
    return any(_SECRET.search(name) for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True))


def _shown(url: str) -> str:
    """The URL without user, password and query."""
    return "::".join(_USER.sub("", part).partition("?")[0] for part in url.split("::"))
