"""What is fuzzed: every file and answer that Seatrial reads and did not just write itself, with what reads it."""

from fuzz.cluster_answers import of_clusters
from fuzz.fuzzing import Kind
from fuzz.job_files import of_jobs
from fuzz.model_answers import of_models
from fuzz.run_files import of_runs
from fuzz.seeds import Seeds
from fuzz.user_files import of_users


def all_kinds(seeds: Seeds) -> dict[str, Kind]:
    made = [*of_users(seeds), *of_runs(seeds), *of_jobs(seeds), *of_clusters(seeds), *of_models()]
    return {kind.name: kind for kind in made}
