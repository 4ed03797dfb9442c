"""Findings on a training job: its log, its losses, the steps that it made, its files, profiles and figures."""
