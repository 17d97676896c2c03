"""What a suite file may say: its keys, their values and the messages about mistakes."""
