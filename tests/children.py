"""Child processes that start fast: they are forked from a server that has already imported torch and transformers."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["nearmt.store", "nearmt.translator"])


def started(function: Callable[..., Any], *arguments: Any, **options: Any) -> BaseProcess:
    """Start a process that runs a function of a test module; the caller ends it."""
    process = _CONTEXT.Process(target=function, args=arguments, kwargs=options, daemon=True)
    process.start()
    return process


def result_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a test module in a child process, which must not fail, and return its result."""
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    process = started(_send, sender, function, *arguments)
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        found = None
    process.join()
    assert process.exitcode == 0, f"the child ended with {process.exitcode}"
    return found


def _send(sender: Connection, function: Callable[..., Any], *arguments: Any) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    sender.send(function(*arguments))
