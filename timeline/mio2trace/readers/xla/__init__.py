"""XSpace: profiles of JAX and TensorFlow, with the programs of XLA that ran."""
