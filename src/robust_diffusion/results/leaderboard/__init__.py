"""Leaderboard: models by worst case, from published records and reports that were checked."""
