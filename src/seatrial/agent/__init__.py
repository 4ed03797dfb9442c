"""The agent that is shipped into a job: runs and supervises its steps and writes JSON records.

Standard library only, Python 3.8 and up, relative imports only: it also runs as a zipapp (`python AGENT COMMAND ...`).
It shares no code with Seatrial, only file formats: the job (`job_file.py`) and the job folder with its records
(`job/observation.py`).
"""
