"""The JSON of the interface. The page's TypeScript types are generated from these."""
