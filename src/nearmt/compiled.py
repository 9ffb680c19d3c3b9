"""Compiles numerical kernels to machine code with numba, the only place that imports it.

A kernel runs in the thread that calls it and releases Python's lock, so several threads can run it at once. Machine
code is cached beside the source or in the user's cache folder; where neither can be written, every process compiles
anew. A kernel that calls another one must be in the same file, because the cache only notices changes of that file.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

import numba

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@overload
def compiled(function: Callable[Arguments, Result], /) -> Callable[Arguments, Result]: ...
@overload
def compiled(**options: Any) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]: ...
def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
    """Compile a function when it is first called: `@compiled`, or `@compiled(fastmath=True)` with options of numba."""
    if function is None:
        return lambda function: _compile(function, options)
    return _compile(function, options)


def _compile(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    kernel: Callable[..., Any]
    try:
        kernel = numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache
        kernel = numba.njit(nogil=True, **options)(function)
    return kernel
