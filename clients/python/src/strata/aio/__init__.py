"""The client for asyncio: the same names as in `strata`, with `await`."""

from strata.aio.client import Client, Session, Task

__all__ = ["Client", "Session", "Task"]
