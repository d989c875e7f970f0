"""The custom resources as models: specs, status and conditions. Imports the standard library and pydantic only."""
