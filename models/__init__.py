"""The small models that Headscope ships: what trains them, how, and what came of it."""
