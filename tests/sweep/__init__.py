"""Every architecture of the installed transformers as a tiny random model, and what Headscope makes of it."""
