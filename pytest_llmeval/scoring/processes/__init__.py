"""Work that is bounded in time and memory, in a process of its own."""
