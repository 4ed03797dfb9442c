"""What is shipped into a job: runs its steps, watches over them, tells all of it as JSON lines.

Standard library only, Python 3.8 and up, relative imports only: it also runs as a zipapp (`python AGENT COMMAND ...`).
Nothing of Seatrial imports it and it imports nothing of Seatrial; what the two share is the form of the files in the
folder of a job (`job/observation.py` has the records) and of what it is to do (`job_file.py`).
"""
