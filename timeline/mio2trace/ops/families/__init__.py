"""Families of problems: each module holds what one family computes, and how its calls and commands state it."""
