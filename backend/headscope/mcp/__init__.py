"""The MCP server: tools by which language models and scripts use the library."""
