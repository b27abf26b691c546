"""Reliable handoff of work between AI agents."""

__version__ = "0.1.0"
