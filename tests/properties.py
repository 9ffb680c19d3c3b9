"""How many examples a property is tried with: the same ones in every run, or many fresh ones.

A test says how many of the profile's hundred it wants: `examples(60)` draws 60 in `make test`, and five times as many
in each round of `make fuzz`. A test that set `max_examples` itself would draw no more there.
"""

from typing import Any

from hypothesis import HealthCheck, settings

_USUAL = 100
_FUZZ_TIMES = 5  # in each of many rounds


def use_profiles() -> None:
    """Before any test is collected. `--hypothesis-profile=fuzz` takes the other one."""
    usual: dict[str, Any] = {
        "database": None,
        "deadline": None,
        "print_blob": True,
        "suppress_health_check": [HealthCheck.too_slow],  # the machine may be busy
    }
    settings.register_profile("same", max_examples=_USUAL, derandomize=True, **usual)
    settings.register_profile("fuzz", max_examples=_USUAL * _FUZZ_TIMES, derandomize=False, **usual)
    settings.load_profile("same")


def examples(number: int, *, suppressed: tuple[HealthCheck, ...] = (), **options: Any) -> settings:
    """Settings of a test that draws so many examples, in place of 100."""
    usual = settings()
    return settings(
        max_examples=max(1, number * usual.max_examples // _USUAL),
        suppress_health_check=[*usual.suppress_health_check, *suppressed],
        **options,
    )
