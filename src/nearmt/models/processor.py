"""Tests in a child process whether this processor can multiply in a 16-bit type.

Some virtual machines advertise matrix instructions (AMX) that the hypervisor forbids. There, a 16-bit product ends the
process with SIGILL, which no handler can turn into an exception.
"""

import signal
import subprocess
import sys
import threading

import torch

SIXTEEN_BITS = (torch.bfloat16, torch.float16)
_TIMEOUT_SECONDS = 60.0  # importing torch takes most of the time
_SUCCESS = "the products are correct"
# The operations of a model: projections of one row and of many, with and without a bias, and attention.
_SCRIPT = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass
import torch
from torch.nn.functional import linear, scaled_dot_product_attention

dtype = getattr(torch, sys.argv[1])
torch.manual_seed(0)

def check(product, *inputs):
    expected, found = product(*inputs), product(*(given.to(dtype) for given in inputs)).float()
    assert (found - expected).abs().max() <= 0.1 * expected.abs().max(), "a wrong product"

with torch.inference_mode():
    for rows in (1, 3, 16, 128):
        for width, outputs in ((32, 40), (512, 512), (512, 4096), (1024, 1024)):
            states, weights = torch.randn(rows, width), torch.randn(outputs, width)
            check(linear, states, weights)
            check(linear, states, weights, torch.randn(outputs))
    for queries, keys in ((1, 5), (1, 100), (4, 40), (64, 64)):
        for width in (16, 64):
            query, key, value = (torch.randn(3, 8, time, width) for time in (queries, keys, keys))
            check(scaled_dot_product_attention, query, key, value)
            check(torch.matmul, query, key.transpose(-1, -2))
print(sys.argv[2])
"""
_known: dict[torch.dtype, str | None] = {}
_lock = threading.Lock()


def why_not(dtype: torch.dtype) -> str | None:
    """The reason why this processor cannot compute in a 16-bit type; None if it can. Tested once per process."""
    with _lock:
        if dtype not in _known:
            _known[dtype] = _test(dtype)
        return _known[dtype]


def _test(dtype: torch.dtype) -> str | None:
    if not sys.executable or getattr(sys, "frozen", False):
        return "there is no Python interpreter to test it with"
    # -P: do not import a file torch.py of the working directory.
    command = [sys.executable, "-P", "-c", _SCRIPT, str(dtype).removeprefix("torch."), _SUCCESS]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"a test took longer than {_TIMEOUT_SECONDS:g} seconds"
    except OSError as error:
        return f"a test could not be started: {error.strerror or error}"
    if done.returncode < 0:
        return f"a test was ended by {_signal_name(-done.returncode)}"
    if done.returncode != 0 or done.stdout.decode(errors="replace").strip() != _SUCCESS:
        return "a test failed"
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
