"""Collective Knowledge's experiment records."""
