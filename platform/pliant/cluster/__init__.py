"""Clusters: local ones of several nodes, notices of machines that go away, and faults on purpose."""
