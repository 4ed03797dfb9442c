"""`python -m seatrial`."""

from seatrial.cli import main

main(prog_name="seatrial")
