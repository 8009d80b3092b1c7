"""Asynchronous batch evaluation of multi-agent medical reasoning on self-hosted models."""

__version__ = "0.1.0"
