"""Caffe's log."""
