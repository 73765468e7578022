"""What TensorFlow 1 leaves behind, by tfprof.md: profiles, step statistics, the timeline's JSON, printed views.

Every form becomes a `TfProfile`; the printed views, which hold no times of their own, become `TfView` records.
"""
