"""The fixtures that give a test its model and device."""
