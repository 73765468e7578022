"""What only Caffe tells of layers: its timer's marks, its layer lines and their times, its warm-up and iterations."""
