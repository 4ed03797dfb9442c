"""Offers a load to a server: requests begin when they are to begin, whatever became of those before them."""

from seatrial.drive.serving.load.stages import offer_load
