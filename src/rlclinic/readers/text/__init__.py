"""What a trainer prints for people: captured consoles, notebooks and pasted lines."""
