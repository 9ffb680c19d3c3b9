"""Values of options that need parsing: lists of names and numbers, and sizes."""

import re

from nearmt.errors import SettingError


def names_of(listed: str) -> tuple[str, ...]:
    """Parse comma-separated names."""
    return tuple(name.strip() for name in listed.split(","))


def numbers_of(option: str, listed: str) -> tuple[int, ...]:
    """Parse comma-separated whole numbers."""
    try:
        return tuple(int(number) for number in names_of(listed))
    except ValueError:
        raise SettingError(f"{option} takes comma-separated whole numbers, not {listed}") from None


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(option: str, text: str | None) -> int | None:
    """Parse a number of bytes such as 500M or 4G."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise SettingError(f"{option} takes a number of bytes such as 500M or 4G, not {text!r}")
    return int(float(found[1]) * _UNITS[found[2].upper()])
