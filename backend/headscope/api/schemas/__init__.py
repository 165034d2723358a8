"""The JSON documents of the REST API as pydantic models. The page's TypeScript types are generated from them."""
