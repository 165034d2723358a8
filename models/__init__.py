"""The small models that Headscope ships, and the code that trains and evaluates them."""
