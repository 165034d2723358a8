"""What `import headscope` gives."""
