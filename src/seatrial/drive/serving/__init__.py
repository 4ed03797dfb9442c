"""The driver of model servers: it asks cases and offers load, over HTTP or gRPC, and records what comes back."""

from seatrial.drive.serving.drive import drive
