"""Activities to layers: the evidence of marks, lines, stamps, likeness and printed times, each in a room."""
