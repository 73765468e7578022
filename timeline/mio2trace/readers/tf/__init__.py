"""The files of TensorFlow 1, by tfprof.md: profiles, step statistics, the timeline's JSON, printed views.

Every form becomes a `TfProfile`; printed views, which have no times of their own, become `TfView` records.
"""
