"""Activities to layers: the net, likeness to what is placed, TensorFlow's scopes; `caffe` has what its logs tell."""
