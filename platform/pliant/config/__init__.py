"""Settings: strict models, YAML files, overrides, and what a resume may change."""
