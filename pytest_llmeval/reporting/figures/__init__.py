"""Figures of a report: the only folder that imports matplotlib."""
