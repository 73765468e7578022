"""Activities to layers: the net, similarity to known layers, a framework's ops. `caffe` has what its logs show."""
