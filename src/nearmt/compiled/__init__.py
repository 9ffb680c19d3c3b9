"""Compiles numerical kernels to machine code with numba, the only place that imports it.

A kernel runs in the thread that calls it and releases Python's lock, so several threads can run it at once. Machine
code is cached beside the source or in the user's cache folder; where neither can be written, every process compiles
again. A kernel that calls another one must be in the same file, because the cache only notices changes of that file.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

import numba
from numba.core import types
from numba.extending import intrinsic

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


def _type_bitcast(context: Any, bits: Any) -> tuple[Any, Callable[..., Any]]:
    """How numba types and compiles `float_of_bits`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


float_of_bits: Callable[[Any], Any] = intrinsic(_type_bitcast)
"""In a kernel: the float32 with the bits of an int32."""
