"""Reach a target server: find it, speak with it, and connect again when the connection is lost."""
