"""What MIOpen's logs hold, whatever it says of operations: messages, and how much of it was understood."""
