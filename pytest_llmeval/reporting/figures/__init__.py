"""Draws the figures of a report. This is the only folder that imports matplotlib."""
