"""GGUF files, the format of llama.cpp: their header, checked without torch, and their conversion into a folder that transformers reads."""
