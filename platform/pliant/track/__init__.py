"""What MLflow is told about a run: delivered from the run's own record, which is the outbox."""
