"""What an operator can set: a table for each section, of names and what is said of them.

The rule of this room: it says how a value is read, its unit, its limits and its line of help, and nothing
else. Types and defaults are those of `router.config.Config`.
"""
