"""The engine itself, pure: no sockets, no asyncio, no clock of its own."""
