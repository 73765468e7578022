"""Profiles that PyTorch writes."""
