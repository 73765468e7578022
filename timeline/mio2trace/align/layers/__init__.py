"""Activities to layers: the net, likeness to what is placed, a framework's ops; `caffe` has what its logs tell."""
