"""Products of integers for the search in a subset: four queries with sixteen keys at a time.

numba computes with 64-bit integers, which processors multiply one by one. This module writes the few vector
instructions that are wanted in LLVM's language. LLVM turns them into one multiply-and-add of pairs where the processor
has it, with AVX2 and later, and into ordinary ones elsewhere. The results are the same on every processor.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

LANES = 16  # keys of a block
ROWS = 4  # queries
_BYTES = 2 * LANES  # a block has the keys' bytes of two dimensions together: those of the first key, then the second …


def _type_dots(
    context: Any, keys: Any, norms: Any, block: Any, queries: Any, factors: Any, out: Any, least: Any, place: Any
) -> tuple[Any, Callable[..., Any]]:
    """How numba types and compiles `dots`. Vectors are read as they lie in memory, so no other types will do."""
    expected = types.uint8, types.float32, types.int16, types.float32, types.int32, types.float32
    for array, dtype in zip((keys, norms, queries, factors, out, least), expected, strict=True):
        if array.dtype != dtype or array.layout != "C":
            raise TypingError(f"dots needs a contiguous array of {dtype}, not {array}")
    return types.void(keys, norms, types.int64, queries, factors, out, least, types.int64), _generate


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    keys, norms, queries, factors, out, least = (
        context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 1, 3, 4, 5, 6)
    )
    byte, short, word, long = (ir.IntType(bits) for bits in (8, 16, 32, 64))
    sums, reals = ir.VectorType(word, LANES), ir.VectorType(ir.FloatType(), LANES)
    num_pairs = builder.extract_value(keys.shape, 1)
    first = builder.mul(arguments[2], builder.mul(num_pairs, ir.Constant(long, _BYTES)))
    block = builder.gep(builder.bitcast(keys.data, byte.as_pointer()), [first])
    pairs = builder.bitcast(queries.data, word.as_pointer())
    totals = [cgutils.alloca_once_value(builder, ir.Constant(sums, [0] * LANES)) for _ in range(ROWS)]
    with cgutils.for_range(builder, num_pairs) as loop:
        place = builder.gep(block, [builder.mul(loop.index, ir.Constant(long, _BYTES))])
        loaded = builder.load(builder.bitcast(place, ir.VectorType(byte, _BYTES).as_pointer()))
        loaded.align = 1
        wide = builder.zext(loaded, ir.VectorType(word, _BYTES))
        for row, total in enumerate(totals):
            at = builder.add(loop.index, builder.mul(num_pairs, ir.Constant(long, row)))
            pair = _repeated(builder, builder.load(builder.gep(pairs, [at])), sums)
            query = builder.sext(builder.bitcast(pair, ir.VectorType(short, _BYTES)), wide.type)
            builder.store(builder.add(builder.load(total), _sum_of_pairs(builder, builder.mul(wide, query))), total)
    norm = builder.load(builder.gep(builder.bitcast(norms.data, reals.as_pointer()), [arguments[2]]))
    norm.align = 4
    smallest = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.FloatType(), [reals]), f"llvm.vector.reduce.fmin.v{LANES}f32"
    )
    num_blocks, rows = builder.extract_value(least.shape, 1), builder.bitcast(out.data, sums.as_pointer())
    for row, total in enumerate(totals):
        at = builder.add(arguments[7], builder.mul(num_blocks, ir.Constant(long, row)))
        builder.store(builder.load(total), builder.gep(rows, [at])).align = 4
        factor = _repeated(builder, builder.load(builder.gep(factors.data, [ir.Constant(long, row)])), reals)
        distances = builder.fadd(norm, builder.fmul(factor, builder.sitofp(builder.load(total), reals)))
        builder.store(builder.call(smallest, [distances], fastmath=("nnan", "nsz")), builder.gep(least.data, [at]))
    return context.get_dummy_value()


def _repeated(builder: Any, value: Any, vector: Any) -> Any:
    """A vector that has one value in all places."""
    nothing = ir.Constant(vector, ir.Undefined)
    single = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


def _sum_of_pairs(builder: Any, products: Any) -> Any:
    """The sums of adjacent values."""
    nothing = ir.Constant(products.type, ir.Undefined)
    chosen = ir.VectorType(ir.IntType(32), LANES)
    even, odd = (
        builder.shuffle_vector(products, nothing, ir.Constant(chosen, list(range(start, _BYTES, 2))))
        for start in (0, 1)
    )
    return builder.add(even, odd)


dots: Callable[[Any, Any, Any, Any, Any, Any, Any, Any], None] = intrinsic(_type_dots)
"""In a kernel: dots(keys, norms, block, queries, factors, out, least, place) writes the products of a block's keys.

keys (blocks, pairs of dimensions, 2 · LANES) uint8; norms (blocks · LANES,) float32; queries (ROWS, dimensions) int16;
factors (ROWS,) float32; out (ROWS, n · LANES) int32, of which the LANES columns from place · LANES on are filled; least
(ROWS, n) float32, of which column `place` gets the least of norm + factor · product. All are contiguous. The caller
sees to it that no sum exceeds 32 bits.
"""
